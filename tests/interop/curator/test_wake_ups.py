"""Waiters of one language are woken by releases of the other, and do not wait for their next look."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Final

import pytest

import holdfast
from tests.interop.curator import PEER as PEER
from tests.interop.curator import Java, Passed, Recipe, path_of
from tests.interop.curator.turns import PythonTurn
from tests.interop.wake_ups import ALL_ROUNDS, WakeUps
from tests.support.calls import Call
from tests.support.waiting import eventually
from tests.zookeeper.support import is_waiting

if not os.environ.get("INTEROP"):
    pytest.skip("INTEROP is not set", allow_module_level=True)

pytestmark = [pytest.mark.timeout(400), pytest.mark.alone]  # the first run downloads the jars

JAVA: Final[dict[str, str]] = {
    "mutex": "InterProcessMutex",
    "write": "InterProcessReadWriteLock",
    "read": "InterProcessReadWriteLock",
    "permits": "InterProcessSemaphoreV2",
    "latch": "LeaderLatch",
}
KINDS: Final = tuple(JAVA)


def exclusive(locks: holdfast.Client, kind: str) -> Callable[[], Any]:
    """Acquires Python's counterpart, which excludes that kind."""
    if kind in ("read", "write"):
        return lambda: locks.rwlock("name").write.acquire(timeout=20)
    if kind == "permits":
        return lambda: locks.semaphore("name", 1).acquire(timeout=20)
    if kind == "latch":
        return lambda: locks.election("name").campaign(timeout=20)
    return lambda: locks.lock("name").acquire(timeout=20)


class InJava:
    def __init__(self, java: Java, kind: str, contender: str = "j", name: str = "name") -> None:
        self._java, self._kind, self._contender, self._path = java, kind, contender, path_of(name)
        self._recipe: Recipe = "mutex"
        if kind in ("read", "write", "permits"):
            self._recipe = kind  # type: ignore[assignment]

    def acquire(self) -> None:
        if self._kind == "latch":
            self._java.lead(self._contender, self._path)
        else:
            self._java.acquire(self._contender, self._path, recipe=self._recipe, size=1)

    def sleeps(self) -> bool:
        return self._java.sleeps(self._contender)

    def held(self) -> float:
        held = self._java.held(self._contender)
        assert held is not None
        return held.at

    def release(self) -> float:
        if self._kind == "latch":
            return self._java.resign(self._contender)
        return self._java.release(self._contender, self._recipe)


def measured(title: str, java: Java, kind: str) -> WakeUps:
    """The reference is a wake-up of a contender in Java by another one."""
    holder = InJava(java, "write" if kind == "read" else kind, "holder", "other")
    waiter = InJava(java, kind, "waiter", "other")

    def wake_up() -> float:
        holder.acquire()
        holder.held()
        waiter.acquire()
        eventually(waiter.sleeps, within=20)
        released = holder.release()
        woken = waiter.held()
        waiter.release()
        return woken - released

    return WakeUps(f"{title}, {kind}", wake_up)


@pytest.mark.interop(JAVA, "wake-ups", direction="Python to Java")
@pytest.mark.parametrize("kind", KINDS)
def test_waiters_of_java_are_woken_by_python(java: Java, locks: holdfast.Client, kind: str) -> None:
    wake_ups, there = measured("python to java", java, kind), InJava(java, kind)
    for _ in range(ALL_ROUNDS):
        lease = exclusive(locks, kind)()
        there.acquire()
        eventually(there.sleeps, within=20)
        released = time.monotonic()
        lease.release()
        wake_ups.add(released, there.held())
        there.release()
    wake_ups.check()


@pytest.mark.interop(JAVA, "wake-ups", direction="Java to Python")
@pytest.mark.parametrize("kind", KINDS)
def test_waiters_of_python_are_woken_by_java(java: Java, locks: holdfast.Client, kind: str) -> None:
    wake_ups, there = measured("java to python", java, kind), InJava(java, kind)
    locks.ping()
    for _ in range(ALL_ROUNDS):
        there.acquire()
        there.held()
        waiting = PythonTurn(exclusive(locks, kind))
        eventually(lambda: is_waiting(locks), within=20)
        released = there.release()
        wake_ups.add(released, waiting.held()[0])
        waiting.release()
    wake_ups.check()


@pytest.mark.interop("DistributedDoubleBarrier", "wake-ups")
def test_members_of_a_barrier_are_woken_by_the_last_one_of_the_other_language(
    java: Java, locks: holdfast.Client
) -> None:
    """From the call of the last one."""
    path, barrier = path_of("gate"), locks.barrier("gate", 2)
    to_java = WakeUps("python to java, barrier", lambda: opening_in_java(java))
    to_python = WakeUps("java to python, barrier", lambda: opening_in_java(java))
    for number in range(2 * ALL_ROUNDS):
        if number % 2:
            java.enter("j", path, 2)
            eventually(lambda: java.sleeps("j"), within=20)
            began = time.monotonic()
            assert barrier.enter(20)
            to_java.add(began, through(java.passed("j")).at)
        else:
            entering = Call(lambda: (barrier.enter(20), time.monotonic()))
            eventually(lambda: len(locks.inspect("gate").holders) == 1, within=20)
            java.enter("j", path, 2)
            began = through(java.passed("j")).began
            entered, at = entering.result(20)
            assert entered
            to_python.add(began, at)
        java.leave("j")
        assert barrier.leave(20)
        through(java.passed("j"))
    to_java.check()
    to_python.check()


def opening_in_java(java: Java) -> float:
    """The reference: both members are in Java."""
    java.enter("first", path_of("other"), 2)
    eventually(lambda: java.sleeps("first"), within=20)
    java.enter("last", path_of("other"), 2)
    opened = through(java.passed("first")).at - through(java.passed("last")).began
    for contender in ("first", "last"):
        java.leave(contender)
    for contender in ("first", "last"):
        through(java.passed(contender))
    return opened


def through(passed: Passed | None) -> Passed:
    assert passed is not None
    return passed
