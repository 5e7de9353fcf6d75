"""A Java process with Redisson's locks: see ``Contender.java``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple
from urllib.parse import quote

from tests.interop import jvm
from tests.interop.contending import Contended
from tests.servers.redis import RedisServer

#: The newest of each major version. All tests run with the last, those marked ``essential`` with each.
VERSIONS: Final = ("3.52.0", "4.7.0")

Kind = Literal["lock", "fenced", "spin", "fair", "read", "write", "permits", "multi", "red"]
Topology = Literal["single", "cluster", "servers"]

#: Redisson's classes, for the records.
JAVA: Final[dict[str, str]] = {
    "lock": "RLock",
    "fenced": "RFencedLock",
    "spin": "RSpinLock",
    "fair": "RFairLock",
    "read": "RReadWriteLock",
    "write": "RReadWriteLock",
    "permits": "RPermitExpirableSemaphore",
    "multi": "RedissonMultiLock",
    "red": "RedissonRedLock",
}


def build(version: str, scratch: Path) -> str:
    """The class path of the program."""
    return jvm.build("redisson", scratch, {"redisson.version": version})


class Held(NamedTuple):
    at: float  #: on the clock of ``time.monotonic``, which Java shares
    token: int  #: of a fenced lock; else -1


class State(NamedTuple):
    locked: bool
    holds: int  #: how many times the contender holds it
    ttl: float  #: in seconds; below 0: none


def listened_to(servers: Sequence[RedisServer], name: str | None = None) -> bool:
    """Whether a waiter in Java listens for a release of the lock; without a name, of any. On a cluster, releases are
    published to shards."""
    kind = "CHANNELS" if len(servers) == 1 else "SHARDCHANNELS"
    channels = [str(channel) for server in servers for channel in server.ask("PUBSUB", kind, "redisson_*")]
    return any(name is None or name in channel.partition(":")[2] for channel in channels)


class Java(jvm.Program):
    """``with Java(classpath, server) as java:``; several servers are nodes of a cluster, or each is one of its own for
    kind "red". ``watchdog``: lockWatchdogTimeout in seconds."""

    def __init__(
        self, classpath: str, *servers: RedisServer, topology: Topology = "single", watchdog: float = 30.0
    ) -> None:
        addresses = [f"{server.host}:{server.port}" for server in servers]
        super().__init__(classpath, str(round(watchdog * 1000)), topology, *addresses)

    def acquire(
        self, contender: str, kind: Kind, name: str, *, timeout: float | None = None, lease: float | None = None
    ) -> None:
        """Starts to acquire the lock without waiting: ``held`` waits. Without a lease Redisson renews it."""
        self.send("acquire", contender, kind, _encoded(name), _milliseconds(timeout), _milliseconds(lease))

    def held(self, contender: str, within: float = 30.0) -> Held | None:
        """Waits until the contender has the lock; None if it timed out."""
        kind, *facts = self.answer(contender, within)
        if kind == "busy":
            return None
        at, token = facts
        return Held(int(at) / 1e9, int(token))

    def take(
        self, contender: str, kind: Kind, name: str, *, timeout: float = 20.0, lease: float | None = None
    ) -> Held | None:
        """Acquires the lock; None if it timed out."""
        self.acquire(contender, kind, name, timeout=timeout, lease=lease)
        return self.held(contender)

    def release(self, contender: str, kind: Kind, name: str) -> float | None:
        """Releases the lock and returns the time at which the release began; None: it did not hold it."""
        self.send("release", contender, kind, _encoded(name))
        kind_of_answer, *facts = self.answer(contender)
        return int(facts[0]) / 1e9 if kind_of_answer == "released" else None

    def force_unlock(self, kind: Kind, name: str) -> bool:
        self.send("force", "operator", kind, _encoded(name))
        return self.answer("operator") == ["true"]

    def state(self, contender: str, kind: Kind, name: str) -> State:
        """The lock as this contender sees it."""
        self.send("state", contender, kind, _encoded(name))
        locked, count, left = self.answer(contender)
        return State(locked == "true", int(count), int(left) / 1000)

    def token(self, name: str) -> int:
        """``RFencedLock.getToken()``."""
        self.send("token", "operator", "fenced", _encoded(name))
        return int(self.answer("operator")[0])

    def sleeps(self, contender: str) -> bool:
        """Whether a contender waits for a message."""
        self.send("sleeping", "operator", contender, "-")
        return self.answer("operator") == ["true"]

    def resize(self, name: str, size: int) -> None:
        """``setPermits``."""
        self.send("resize", "operator", "permits", _encoded(name), str(size))
        self.answer("operator")

    def available(self, name: str) -> int:
        self.send("available", "operator", "permits", _encoded(name))
        return int(self.answer("operator")[0])

    def set_count(self, name: str, count: int) -> bool:
        """``RCountDownLatch.trySetCount``."""
        self.send("set count", "operator", "latch", _encoded(name), str(count))
        return self.answer("operator") == ["true"]

    def count_down(self, name: str) -> float:
        """Returns when it began."""
        self.send("count down", "operator", "latch", _encoded(name))
        return int(self.answer("operator")[1]) / 1e9

    def count(self, name: str) -> int:
        self.send("count", "operator", "latch", _encoded(name))
        return int(self.answer("operator")[0])

    def wait_for_latch(self, contender: str, name: str, timeout: float | None = None) -> None:
        """Starts to wait: ``opened`` returns the result."""
        self.send("await", contender, "latch", _encoded(name), _milliseconds(timeout))

    def opened(self, contender: str) -> float | None:
        """Waits until the contender has seen that the latch is open: when; None if it timed out."""
        result, *at = self.answer(contender)
        return int(at[0]) / 1e9 if result == "open" else None

    def contend(self, contender: str, kind: Kind, name: str, register: Path, tokens: Path, seconds: float) -> None:
        """Increments the number in a file under the lock, again and again; ``contended`` waits."""
        self.send("contend", contender, kind, _encoded(name), str(register), str(tokens), _milliseconds(seconds))

    def contended(self, contender: str, within: float) -> Contended:
        _, grants, updates, longest = self.answer(contender, within)
        return Contended(int(grants), int(updates), int(longest) / 1000)


def _encoded(name: str) -> str:
    return quote(name, safe="")


def _milliseconds(seconds: float | None) -> str:
    return "-1" if seconds is None else str(round(seconds * 1000))
