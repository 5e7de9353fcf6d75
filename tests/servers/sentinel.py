"""Redis Sentinel as in production, but faster: one master, two replicas, three sentinels."""

from __future__ import annotations

from typing import ClassVar, Final

from tests.servers.group import READY_WITHIN, Group, wait_until
from tests.servers.process import start_all
from tests.servers.redis import RedisServer
from tests.servers.replication import Replication

MASTER_NAME: Final = "mymaster"
FAILOVER_WITHIN: Final = 20.0
_REPLICAS: Final = 2
_SENTINELS: Final = 3
_QUORUM: Final = 2

# Sentinels look for each other and for replicas every 2 and 10 s. The periods are shorter until all know each
# other, and then restored: a failover takes its usual time.
_SHORT_PERIODS: Final = ("info-period", 100, "publish-period", 100)
_USUAL_PERIODS: Final = ("info-period", 10_000, "publish-period", 2_000)
# For how long a server has to be silent before a sentinel considers it down, in milliseconds. Until a test kills a
# server, a silent server is only slow: an unwanted failover would replace the master.
_SLOW_DETECTION: Final = 60_000
_QUICK_DETECTION: Final = 1_000
# On a busy machine a sentinel may not run for two seconds. It then waits 30 s (TILT), longer than the tests wait.
_SHORT_TILT: Final = ("tilt-period", 1_000)


class Sentinel(RedisServer):
    """One sentinel. It rewrites its configuration at run time; ``restart`` continues with that."""

    program: ClassVar[str] = "redis-server --sentinel"
    _listening: ClassVar[str] = "Sentinel ID is"

    def __init__(self, master: RedisServer, *config: str, password: str | None = None) -> None:
        super().__init__(*config, password=password)
        self._master = master

    def master_port(self) -> int:
        """The master's port as this sentinel knows it."""
        _, port = self.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME)
        return int(port)

    def knows_all(self) -> bool:
        """Whether it is connected to the master, all replicas and all other sentinels, and considers none down."""
        master: dict[str, str] = self.ask("SENTINEL MASTER", MASTER_NAME)
        replicas: list[dict[str, str]] = self.ask("SENTINEL SLAVES", MASTER_NAME)
        others: list[dict[str, str]] = self.ask("SENTINEL SENTINELS", MASTER_NAME)
        return (
            master["flags"] == "master"
            and [(one["flags"], one["master-link-status"]) for one in replicas] == [("slave", "ok")] * _REPLICAS
            and [one["flags"] for one in others] == ["sentinel"] * (_SENTINELS - 1)
        )

    def set_periods(self, *periods: str | int) -> None:
        self.ask("SENTINEL", "DEBUG", *periods)

    def detect_quickly(self) -> None:
        """From now on a server that is silent for a second is considered down."""
        self.ask("SENTINEL", "SET", MASTER_NAME, "down-after-milliseconds", _QUICK_DETECTION)

    def _command(self) -> list[str]:
        return [*super()._command(), "--sentinel"]

    def _lines(self) -> list[str]:
        lines = [f"bind {self.host}", f"port {self.port}", f"dir {self.directory}"]
        lines.append(f"sentinel monitor {MASTER_NAME} {self._master.host} {self._master.port} {_QUORUM}")
        lines.append(f"sentinel down-after-milliseconds {MASTER_NAME} {_SLOW_DETECTION}")
        lines.append(f"sentinel failover-timeout {MASTER_NAME} 3000")
        lines.append(f"sentinel parallel-syncs {MASTER_NAME} 1")
        if self._master.password:
            lines.append(f"sentinel auth-pass {MASTER_NAME} {self._master.password}")
        if self.password:
            lines.append(f"requirepass {self.password}")  # also used among the sentinels
        return [*lines, *self._config]


class SentinelSet(Group[RedisServer]):
    """``with SentinelSet() as sentinels:``; lines of redis.conf are for the data nodes.

    ``password`` is that of the data nodes, ``sentinel_password`` that of the sentinels.
    """

    def __init__(self, *config: str, password: str | None = None, sentinel_password: str | None = None) -> None:
        super().__init__()
        self._password = password
        self._sentinel_password = sentinel_password
        self._data = Replication(_REPLICAS, *config, password=password, links=False)
        self.servers = self._data.servers  # one list, with every server that was started
        self.sentinels: list[Sentinel] = []

    @property
    def url(self) -> str:
        user_info = f":{self._password}@" if self._password else ""
        return f"redis+sentinel://{user_info}{','.join(one.address for one in self.sentinels)}/{MASTER_NAME}"

    @property
    def data_nodes(self) -> list[RedisServer]:
        return [self._data.master, *self._data.replicas]

    def master(self) -> RedisServer:
        """The master according to the first sentinel that answers."""
        sentinel = next(one for one in self.sentinels if one.answering)
        return self.at(sentinel.master_port())

    def kill_master(self) -> RedisServer:
        """SIGKILL for the master; returns it. No other server is replaced: sentinels have long timeouts until then."""
        master = self.master()
        for sentinel in self.sentinels:
            if sentinel.answering:
                sentinel.detect_quickly()
        master.kill()
        return master

    def wait_for_new_master(self, old: RedisServer, within: float = FAILOVER_WITHIN) -> RedisServer:
        """Wait until all sentinels that answer name one master, which is not ``old`` and knows that it is master."""

        def elected() -> bool:
            ports = {one.master_port() for one in self.sentinels if one.answering}
            if len(ports) != 1 or old.port in ports:
                return False
            role: str = self.at(ports.pop()).ask("INFO", "replication")["role"]
            return role == "master"

        wait_until(elected, within, "a new master is elected")
        return self.master()

    def _start(self) -> None:
        self._data.start()
        # Not earlier: a sentinel that asks the master too early detects its replicas ten seconds later.
        self.sentinels += [Sentinel(self._data.master, password=self._sentinel_password) for _ in range(_SENTINELS)]
        self.servers += self.sentinels
        start_all(self.sentinels)
        for sentinel in self.sentinels:
            sentinel.set_periods(*_SHORT_PERIODS, *_SHORT_TILT)
        wait_until(lambda: all(one.knows_all() for one in self.sentinels), READY_WITHIN, "all sentinels agree")
        for sentinel in self.sentinels:
            sentinel.set_periods(*_USUAL_PERIODS)
