"""A master with replicas, each behind a link that can go dark."""

from __future__ import annotations

from typing import Final

from tests.servers.group import READY_WITHIN, Group, start_all, wait_until
from tests.servers.link import ReplicationLink
from tests.servers.redis import RedisServer

#: Replication without its usual pauses, and an end that does not wait for replicas.
QUICK: Final = (
    "repl-diskless-sync-delay 0",
    "repl-ping-replica-period 1",
    "shutdown-timeout 0",
)


class Replication(Group):
    """``Replication(2)``: ``master``, ``replicas`` and, in the same order, the ``links`` they replicate through.

    Further arguments are lines of redis.conf for all of them. ``links=False``: the replicas are told the master's own
    address, as Sentinel needs it. A link leads to the first master for ever; ``demote`` goes around it.
    """

    def __init__(self, replicas: int, *config: str, password: str | None = None, links: bool = True) -> None:
        super().__init__()
        self._config = (*QUICK, *config, *([f"masterauth {password}"] if password else []))
        self._password = password
        self._count = replicas
        self._linked = links
        self.master = RedisServer(*self._config, password=password)
        self.replicas: list[RedisServer] = []
        self.links: list[ReplicationLink] = []
        self.servers.append(self.master)

    @property
    def url(self) -> str:
        """The master's."""
        return self.master.url

    def promote(self, replica: RedisServer) -> None:
        """Make a master of it, as Sentinel or an operator would. The old master is not asked and goes on."""
        replica.ask("REPLICAOF", "NO", "ONE")

    def demote(self, server: RedisServer, master: RedisServer) -> None:
        """Make it a replica of ``master``, and wait until it has its data."""
        server.ask("REPLICAOF", master.host, master.port)
        wait_until(lambda: is_linked(server), READY_WITHIN, f"replica on port {server.port} is linked")

    def close(self) -> None:
        super().close()
        for link in self.links:
            link.close()

    def _start(self) -> None:
        self.master.start()
        for _ in range(self._count):
            port = self.master.port
            if self._linked:
                self.links.append(ReplicationLink(self.master))
                port = self.links[-1].port
            replica = RedisServer(*self._config, f"replicaof 127.0.0.1 {port}", password=self._password)
            self.replicas.append(replica)
            self.servers.append(replica)
        start_all(self.replicas)
        wait_until(self._is_ready, READY_WITHIN, "all replicas are online")

    def _is_ready(self) -> bool:
        online = sum(slave["state"] == "online" for slave in slaves(self.master))
        return online == self._count and all(map(is_linked, self.replicas))


def is_linked(replica: RedisServer) -> bool:
    """It has its master's data and follows it."""
    status: str = replica.ask("INFO", "replication").get("master_link_status", "is a master")
    return status == "up"


def slaves(master: RedisServer) -> list[dict[str, str]]:
    """The replicas as their master sees them."""
    information = master.ask("INFO", "replication")
    return [information[f"slave{place}"] for place in range(information["connected_slaves"])]
