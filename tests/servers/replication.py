"""A master with replicas, each behind a link that can become a black hole, to make a replica stale (faults R16, R17).

A paused replica is not stale: the data waits in its socket and is applied when it resumes. Behind a black hole no data
reaches it. Bytes are held back, as TCP would hold them: after ``heal`` they arrive, in order.
"""

from __future__ import annotations

from typing import Final

from tests.servers.group import READY_WITHIN, Group, wait_until
from tests.servers.loop_thread import LoopThread
from tests.servers.process import start_all
from tests.servers.redis import RedisServer
from tests.servers.relay import Relay

#: Replication without its usual delays, and a shutdown that does not wait for replicas.
QUICK: Final = (
    "repl-diskless-sync-delay 0",
    "repl-ping-replica-period 1",
    "shutdown-timeout 0",
)


class Replication(Group[RedisServer]):
    """``Replication(2)``: ``master``, ``replicas`` and, in the same order, the ``links`` they replicate through.

    Further arguments are lines of redis.conf for all of them. ``links=False``: the replicas know the master's own
    address, as Sentinel requires. A link always leads to the first master; ``demote`` bypasses it.
    """

    def __init__(self, replicas: int, *config: str, password: str | None = None, links: bool = True) -> None:
        super().__init__()
        self._config = (*QUICK, *config, *([f"masterauth {password}"] if password else []))
        self._password = password
        self._count = replicas
        self._loop = LoopThread("replication-links") if links else None
        self.master = RedisServer(*self._config, password=password)
        self.replicas: list[RedisServer] = []
        self.links: list[Relay] = []
        self.servers.append(self.master)

    @property
    def url(self) -> str:
        """The URL of the master."""
        return self.master.url

    def promote(self, replica: RedisServer) -> None:
        """Make it a master, as Sentinel or an operator would. The old master is not notified and continues."""
        replica.ask("REPLICAOF", "NO", "ONE")

    def demote(self, server: RedisServer, master: RedisServer) -> None:
        """Make it a replica of ``master``, and wait until it has its data."""
        server.ask("REPLICAOF", master.host, master.port)
        wait_until(lambda: is_linked(server), READY_WITHIN, f"replica on port {server.port} is linked")

    def close(self) -> None:
        super().close()
        for link in self.links:
            link.close()
        if self._loop is not None:
            self._loop.close()

    def _start(self) -> None:
        self.master.start()
        for _ in range(self._count):
            port = self.master.port
            if self._loop is not None:
                link = Relay(self._loop, lambda: (self.master.host, self.master.port)).start()
                self.links.append(link)
                port = link.port
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
