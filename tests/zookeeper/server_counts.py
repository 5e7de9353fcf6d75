"""A server's own counts of the resources that clients can leave behind."""

from __future__ import annotations

from typing import NamedTuple, Self

from tests.servers.zookeeper import ZooKeeperServer


class ServerCounts(NamedTuple):
    nodes: int
    ephemeral: int
    watches: int
    connections: int
    sessions: int

    @classmethod
    def of(cls, server: ZooKeeperServer) -> Self:
        counted = dict(line.split("\t", 1) for line in server.ask("mntr").splitlines() if "\t" in line)
        names = ("znode_count", "ephemerals_count", "watch_count", "num_alive_connections", "global_sessions")
        return cls(*(int(counted[f"zk_{name}"]) for name in names))
