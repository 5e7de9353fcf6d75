"""What a server counts of all that its clients can leave there; and what this process has open itself."""

from __future__ import annotations

import gc
import os
from typing import NamedTuple, Self

from tests.servers.zookeeper import ZooKeeperServer
from tests.support.leaks import threads


class There(NamedTuple):
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


class Here(NamedTuple):
    threads: int
    descriptors: int

    @classmethod
    def now(cls) -> Self:
        gc.collect()
        # The event loop keeps threads for later.
        lasting = [name for name in threads() if not name.startswith("asyncio_")]
        return cls(len(lasting), len(os.listdir("/proc/self/fd")))
