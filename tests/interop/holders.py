"""Holders of one language that are killed, or frozen for longer than their locks last, and waiters of the other.

One of each kind is held at a time, so that all kinds together take the time of one. ``killed`` and ``frozen`` are the
same for all libraries and servers: a test gives them its two sides. Python's are here; ``sides.py`` beside each Java
program has those in Java.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import holdfast
from tests.interop.counterparts import exclusive
from tests.support.calls import Call
from tests.support.child import Child
from tests.support.waiting import eventually

#: Until all contenders wait (s).
_SOON: Final = 20.0
_LONGEST: Final = 60.0
#: That module, in an expression for a child.
COUNTERPARTS: Final = "__import__('tests.interop.counterparts', fromlist=['same'])"


class Granted(NamedTuple):
    at: float
    token: int  #: 0 if this kind has none there


class Waiters(Protocol):
    def wait(self) -> None:
        """Begins to acquire what excludes each kind, and returns when all wait."""

    def granted(self) -> dict[str, Granted]:
        """Waits until all are granted."""

    def check_held(self) -> None:
        """Whether the server has them as the holders."""

    def release(self) -> None: ...


class Victim(Protocol):
    def hold(self) -> dict[str, int]:
        """Acquires one of each kind: the fencing tokens, 0 if it has none."""

    def kill(self) -> None: ...

    def freeze(self) -> None: ...

    def wake(self) -> None: ...

    def check_lost(self) -> None:
        """Whether it finds out, now that it continues; what it does late must not harm the next holders."""


def killed(victim: Victim, waiters: Waiters, within: float) -> None:
    """``within``: after the last sign of life, all that it held is granted (s)."""
    tokens = victim.hold()
    waiters.wait()
    victim.kill()
    _check(waiters, tokens, time.monotonic(), within)
    waiters.check_held()
    waiters.release()


def frozen(victim: Victim, waiters: Waiters, within: float) -> None:
    tokens = victim.hold()
    waiters.wait()
    victim.freeze()
    try:
        _check(waiters, tokens, time.monotonic(), within)
    finally:
        victim.wake()
    victim.check_lost()
    waiters.check_held()
    waiters.release()


def _check(waiters: Waiters, tokens: dict[str, int], since: float, within: float) -> None:
    for kind, (at, token) in waiters.granted().items():
        assert at - since < within, kind
        assert not token or token > tokens[kind], kind


class PythonWaiters:
    """Each on a thread of the test."""

    def __init__(self, locks: holdfast.Client, kinds: Sequence[str]) -> None:
        self._locks, self._kinds = locks, kinds
        self._calls: dict[str, Call] = {}
        self._leases: dict[str, Any] = {}

    def wait(self, waiters: int = 1) -> None:
        """``waiters``: how many each kind has then."""
        self._calls = {kind: Call(partial(self._acquire, kind)) for kind in self._kinds}
        for kind in self._kinds:
            eventually(partial(self._waits, kind, waiters), within=_SOON, event=f"a waiter for {kind}")

    def _acquire(self, kind: str) -> tuple[Any, float]:
        return exclusive(self._locks, kind, kind, timeout=_LONGEST), time.monotonic()

    def _waits(self, kind: str, waiters: int) -> bool:
        return self._locks.inspect(kind).waiters == waiters

    def granted(self) -> dict[str, Granted]:
        found = {}
        for kind, call in self._calls.items():
            self._leases[kind], at = call.result(_LONGEST)
            found[kind] = Granted(at, self._leases[kind].token)
        return found

    def check_held(self) -> None:
        for kind, lease in self._leases.items():
            lease.renew()
            assert [holder.owner for holder in self._locks.inspect(kind).holders] == [lease.owner], kind

    def release(self) -> None:
        for lease in self._leases.values():
            lease.release()


class PythonVictim:
    """All in one process."""

    def __init__(self, child: Child, kinds: Sequence[str]) -> None:
        self._child, self._kinds = child, kinds
        self.kill, self.freeze, self.wake = child.kill, child.freeze, child.wake

    def hold(self) -> dict[str, int]:
        return {
            kind: self._child.do(f"keep.setdefault({kind!r}, {COUNTERPARTS}.same(locks, {kind!r}, {kind!r})).token")
            for kind in self._kinds
        }

    def check_lost(self) -> None:
        for kind in self._kinds:
            assert not self._child.do(f"keep[{kind!r}].held"), kind
            for act in ("check", "release"):
                assert self._child.do(f"error_of(keep[{kind!r}].{act})").startswith("LockLost"), (kind, act)
        self._child.do("locks.close()")
