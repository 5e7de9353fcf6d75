"""The line of a lock as the servers have it, seen by a plain client."""

from __future__ import annotations

from typing import Final

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.servers.zookeeper import BASE


class Line:
    """``Line(client, name)``: whose nodes are there, first in line first."""

    def __init__(self, client: KazooClient, name: str) -> None:
        self.client: Final = client
        self.path: Final = f"{BASE}/{name}"

    def nodes(self) -> list[str]:
        try:
            found: list[str] = self.client.get_children(self.path)
        except NoNodeError:
            return []
        return sorted(found, key=lambda node: node.rpartition("-")[2])

    def tokens(self) -> list[int]:
        """The fencing tokens of those in line; a node that goes meanwhile is left out."""
        stats = [self.client.exists(f"{self.path}/{node}") for node in self.nodes()]
        return [stat.czxid for stat in stats if stat is not None]

    def ever(self) -> int:
        """How many there have been since the lock's own node was made."""
        stat = self.client.exists(self.path)
        assert stat is not None
        return int(stat.cversion + stat.numChildren) // 2

    def delete(self, node: str) -> None:
        self.client.delete(f"{self.path}/{node}")

    def delete_all(self) -> None:
        """Everybody in line and the lock itself, in one transaction: nobody gets a turn in between."""
        removal = self.client.transaction()
        for node in self.nodes():
            removal.delete(f"{self.path}/{node}")
        removal.delete(self.path)
        for result in removal.commit():
            assert result is True
