"""Sentinels of a master whose links to its replicas can be cut: a failover then loses what was written since."""

from __future__ import annotations

from typing import Final

import redis

from tests.servers.group import READY_WITHIN, Group, wait_until
from tests.servers.process import start_all
from tests.servers.redis import RedisServer
from tests.servers.replication import Replication
from tests.servers.sentinel import MASTER_NAME, Sentinel

#: A sentinel corrects the master's address of a replica if it differs for this long. The address of a link must last
#: until the master is killed.
_LONG: Final = 600_000
_USUAL: Final = 3_000
_HURRIED: Final = ("info-period", 100, "publish-period", 100, "tilt-period", 1_000)
_UNHURRIED: Final = ("info-period", 10_000, "publish-period", 2_000)


class StaleSentinels(Group[RedisServer]):
    """One master, two replicas behind links, three sentinels."""

    def __init__(self) -> None:
        super().__init__()
        self.data = Replication(2)
        self.servers = self.data.servers
        self.sentinels: list[Sentinel] = []

    @property
    def url(self) -> str:
        return f"redis+sentinel://{','.join(one.address for one in self.sentinels)}/{MASTER_NAME}"

    @property
    def master(self) -> RedisServer:
        """The master at the start."""
        return self.data.master

    def go_dark(self) -> None:
        """Cuts the links: from now on the replicas receive nothing from the master."""
        for link in self.data.links:
            link.black_hole_all()

    def known_to_replicas(self, key: str) -> int:
        """How many of the replicas have ``key``."""
        return sum(replica.ask("EXISTS", key) for replica in self.data.replicas)

    def kill_master(self) -> None:
        for sentinel in self.sentinels:
            sentinel.ask("SENTINEL", "SET", MASTER_NAME, "failover-timeout", _USUAL)
            sentinel.detect_quickly()
        self.master.kill()

    def promoted(self) -> RedisServer | None:
        """The replica that is master now, by its own answer."""
        return next((one for one in self.data.replicas if _is_master(one)), None)

    def name(self, server: RedisServer) -> bool:
        """Whether all sentinels name ``server`` as the master."""
        return {one.master_port() for one in self.sentinels} == {server.port}

    def close(self) -> None:
        super().close()
        self.data.close()

    def _start(self) -> None:
        self.data.start()
        timeout = f"sentinel failover-timeout {MASTER_NAME} {_LONG}"
        self.sentinels += [Sentinel(self.master, timeout) for _ in range(3)]
        self.servers += self.sentinels
        start_all(self.sentinels)
        for sentinel in self.sentinels:
            sentinel.set_periods(*_HURRIED)
        wait_until(lambda: all(one.knows_all() for one in self.sentinels), READY_WITHIN, "all sentinels agree")
        for sentinel in self.sentinels:
            sentinel.set_periods(*_UNHURRIED)


def _is_master(server: RedisServer) -> bool:
    try:
        role: str = server.ask("ROLE")[0]
    except redis.ConnectionError:
        return False  # sentinels close all connections to a server that they promote
    return role == "master"
