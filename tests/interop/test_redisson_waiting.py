"""Waiters of one language are woken by releases of the other, within milliseconds: see ``wake_ups.py``."""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

import holdfast
from tests.interop.counterparts import exclusive
from tests.interop.recording import TO_JAVA, TO_PYTHON
from tests.interop.redisson import JAVA, Java, Kind, listened_to
from tests.interop.wake_ups import ALL_ROUNDS, WakeUps
from tests.servers.redis import RedisServer
from tests.support.calls import Call
from tests.support.waiting import eventually

if not os.environ.get("INTEROP"):
    pytest.skip("INTEROP is not set", allow_module_level=True)

pytestmark = [pytest.mark.timeout(400), pytest.mark.alone]  # the first run downloads the jars

KINDS: Final[tuple[Kind, ...]] = ("lock", "fenced", "fair", "write", "read", "permits")
MEDIAN: Final = "wake-ups within 10 ms (median)"
LATCH: Final = "RCountDownLatch"


def measured(title: str, java: Java) -> WakeUps:
    """The reference is an RLock that one contender in Java releases and another one waits for."""

    def wake_up() -> float:
        assert java.take("holder", "lock", "other") is not None
        java.acquire("waiter", "lock", "other")
        eventually(lambda: java.sleeps("waiter"), within=20)
        released = java.release("holder", "lock", "other")
        assert released is not None
        woken = java.held("waiter")
        assert woken is not None
        java.release("waiter", "lock", "other")
        return woken.at - released

    return WakeUps(title, wake_up)


@pytest.mark.interop(JAVA, MEDIAN, direction=TO_JAVA)
@pytest.mark.parametrize("kind", KINDS)
def test_waiters_of_java_are_woken_by_python(
    redisson: Java, locks: holdfast.Client, redis_server: RedisServer, kind: Kind
) -> None:
    wake_ups = measured(f"python to java, {kind}", redisson)
    for _ in range(ALL_ROUNDS):
        lease = exclusive(locks, kind)
        eventually(lambda: not listened_to([redis_server]), within=20)  # those of the last round
        redisson.acquire("j", kind, "name", lease=60)
        eventually(lambda: listened_to([redis_server]), within=20)
        released = time.monotonic()
        lease.release()
        held = redisson.held("j")
        assert held is not None
        wake_ups.add(released, held.at)
        redisson.release("j", kind, "name")
    wake_ups.check()


@pytest.mark.interop("RReadWriteLock", "wake-ups of writers by the last reader", direction=TO_JAVA)
def test_writers_of_java_are_woken_by_the_last_reader_of_python(
    redisson: Java, locks: holdfast.Client, redis_server: RedisServer
) -> None:
    wake_ups = measured("python's last reader to java's writer", redisson)
    with ThreadPoolExecutor(2) as pool:
        for _ in range(ALL_ROUNDS):
            readers = [pool.submit(locks.rwlock("name").read.acquire, timeout=20).result(30) for _ in range(2)]
            eventually(lambda: not listened_to([redis_server]), within=20)
            redisson.acquire("j", "write", "name", lease=60)
            eventually(lambda: listened_to([redis_server]), within=20)
            readers[0].release()
            released = time.monotonic()
            readers[1].release()
            held = redisson.held("j")
            assert held is not None
            wake_ups.add(released, held.at)
            redisson.release("j", "write", "name")
    wake_ups.check()


@pytest.mark.interop(JAVA, MEDIAN, direction=TO_PYTHON)
@pytest.mark.parametrize("kind", [*KINDS, "spin"])
def test_waiters_of_python_are_woken_by_java(redisson: Java, locks: holdfast.Client, kind: Kind) -> None:
    wake_ups = measured(f"java to python, {kind}", redisson)
    if kind == "permits":
        redisson.resize("name", 1)

    def wait() -> float:
        with exclusive(locks, kind):
            return time.monotonic()

    with ThreadPoolExecutor(1) as pool:
        for _ in range(ALL_ROUNDS):
            assert redisson.take("j", kind, "name", lease=60) is not None
            waiting = pool.submit(wait)
            eventually(lambda: locks.inspect("name").waiters == 1, within=20)
            released = redisson.release("j", kind, "name")
            assert released is not None
            wake_ups.add(released, waiting.result(20))
    wake_ups.check()


# ---- latches


@pytest.mark.interop(LATCH, MEDIAN, direction=TO_JAVA)
def test_waiters_of_java_are_woken_by_the_opening_of_a_latch(redisson: Java, locks: holdfast.Client) -> None:
    """The later one of two."""
    wake_ups, latch = measured("python to java, latch", redisson), locks.latch("name", 1)
    for _ in range(ALL_ROUNDS):
        latch.reset()
        for contender in ("j", "k"):
            redisson.wait_for_latch(contender, "name")
        for contender in ("j", "k"):
            eventually(lambda: redisson.sleeps(contender), within=20)  # noqa: B023
        began = time.monotonic()
        latch.count_down()
        opened = [redisson.opened(contender) for contender in ("j", "k")]
        assert None not in opened
        wake_ups.add(began, *filter(None, opened))
    wake_ups.check()


@pytest.mark.interop(LATCH, MEDIAN, direction=TO_PYTHON)
def test_waiters_of_python_are_woken_by_the_opening_of_a_latch(redisson: Java, locks: holdfast.Client) -> None:
    wake_ups, latch = measured("java to python, latch", redisson), locks.latch("name", None)
    for _ in range(ALL_ROUNDS):
        assert redisson.set_count("name", 1)
        waiting = Call(lambda: (latch.wait(20), time.monotonic()))
        eventually(lambda: listens(waiting), within=20)  # noqa: B023
        began = redisson.count_down("name")
        opened, at = waiting.result(20)
        assert opened
        wake_ups.add(began, at)
    wake_ups.check()


def listens(call: Call) -> bool:
    """Whether the call has looked, and waits for a push."""
    frame = sys._current_frames().get(call.thread or 0)
    while frame is not None and frame.f_code.co_name != "_pushed":
        frame = frame.f_back
    return frame is not None
