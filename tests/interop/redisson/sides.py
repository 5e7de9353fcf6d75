"""Contenders in a process with Redisson, one for each kind of lock: see ``tests/interop/holders.py``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from tests.interop.holders import Granted
from tests.interop.redisson import Java, Kind, listened_to
from tests.servers.redis import RedisServer
from tests.support.waiting import eventually

_SOON: Final = 20.0
_LONGEST: Final = 60.0


def _excluding(kind: Kind) -> Kind:
    return "write" if kind == "read" else kind


class JavaWaiters:
    """``servers``: the one that it uses, or the nodes of the cluster."""

    def __init__(self, java: Java, kinds: Sequence[Kind], servers: Sequence[RedisServer]) -> None:
        self._java, self._kinds, self._servers = java, kinds, servers

    def wait(self) -> None:
        for kind in self._kinds:
            lease = _LONGEST if kind == "permits" else None
            self._java.acquire(kind, _excluding(kind), kind, timeout=_LONGEST, lease=lease)
        for kind in self._kinds:
            # A spin lock does not wait for a message: it looks again and again.
            if kind != "spin":
                eventually(partial(listened_to, self._servers, kind), within=_SOON, event=f"a waiter for {kind}")

    def granted(self) -> dict[str, Granted]:
        found: dict[str, Granted] = {}
        for kind in self._kinds:
            held = self._java.held(kind, _LONGEST)
            assert held is not None, kind
            found[kind] = Granted(held.at, max(0, held.token))
        return found

    def check_held(self) -> None:
        for kind in self._kinds:
            if kind == "permits":
                assert self._java.available(kind) == 0
            else:
                assert self._java.state(kind, _excluding(kind), kind).holds == 1, kind

    def release(self) -> None:
        for kind in self._kinds:
            assert self._java.release(kind, _excluding(kind), kind) is not None, kind


class JavaVictim:
    """``ttl``: for how long its permits last (s). Java does not renew them; of the others its watchdog knows."""

    def __init__(self, java: Java, kinds: Sequence[Kind], ttl: float) -> None:
        self._java, self._kinds, self._ttl = java, kinds, ttl
        self.kill, self.freeze, self.wake = java.kill, java.freeze, java.wake

    def hold(self) -> dict[str, int]:
        tokens: dict[str, int] = {}
        for kind in self._kinds:
            if kind == "permits":
                self._java.resize(kind, 1)
            held = self._java.take(kind, kind, kind, lease=self._ttl if kind == "permits" else None)
            assert held is not None, kind
            tokens[kind] = max(0, held.token)
        return tokens

    def check_lost(self) -> None:
        for kind in self._kinds:
            assert self._java.release(kind, kind, kind) is None, kind
            assert self._java.take(kind, kind, kind, timeout=0, lease=self._ttl) is None, kind
