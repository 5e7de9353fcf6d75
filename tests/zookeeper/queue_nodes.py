"""The queue of nodes of a lock as the servers have it, seen by a plain client."""

from __future__ import annotations

from typing import Final

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.servers.zookeeper import BASE


class QueueNodes:
    """``QueueNodes(client, name)``: the nodes of a lock, the head of the queue first."""

    def __init__(self, client: KazooClient, name: str, base: str = BASE) -> None:
        self.client: Final = client
        self.path: Final = f"{base}/{name}"

    def nodes(self) -> list[str]:
        try:
            found: list[str] = self.client.get_children(self.path)
        except NoNodeError:
            return []
        return sorted(found, key=lambda node: node.rpartition("lock-")[2])

    def tokens(self) -> list[int]:
        """The fencing tokens of the nodes; a node that is removed meanwhile is omitted."""
        stats = [self.client.exists(f"{self.path}/{node}") for node in self.nodes()]
        return [stat.czxid for stat in stats if stat is not None]

    def ever(self) -> int:
        """How many nodes have been created since the lock's parent node was created."""
        stat = self.client.exists(self.path)
        assert stat is not None
        return int(stat.cversion + stat.numChildren) // 2

    def delete(self, node: str) -> None:
        self.client.delete(f"{self.path}/{node}")

    def delete_all(self) -> None:
        """All nodes and the lock itself, in one transaction: no waiter is granted the lock in between."""
        removal = self.client.transaction()
        for node in self.nodes():
            removal.delete(f"{self.path}/{node}")
        removal.delete(self.path)
        for result in removal.commit():
            assert result is True
