"""Waiters of the memory engine that are gone or do not answer, and breaks under load."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import uuid
from collections.abc import Iterator

import pytest

import holdfast
from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import Busy, Claim, Found, Granted
from holdfast.engines.memory.keeper import MemoryKeeper
from holdfast.engines.memory.session import MemorySession
from holdfast.engines.memory.store import Store
from tests.support.waiting import eventually


@pytest.fixture
def url() -> str:
    return f"memory:{uuid.uuid4().hex}"


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()


def wait_in_a_loop_that_is_closed(url: str) -> None:
    """For the lock ``busy``, which is held."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)  # "Task was destroyed but it is pending": it was
    locks = holdfast.aio.connect(url)
    task = loop.create_task(locks.lock("busy").acquire())
    with holdfast.connect(url) as observer:
        while observer.inspect("busy").waiters == 0:
            loop.run_until_complete(asyncio.sleep(0.001))
    del task
    loop.close()


def in_turn(locks: holdfast.Client, count: int) -> list[BaseException]:
    """``count`` threads of one client, which hold the lock one after the other."""
    failures: list[BaseException] = []

    def use() -> None:
        try:
            with locks.lock("busy", timeout=10):
                time.sleep(0.01)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=use) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return failures


@pytest.mark.usefixtures("without_collector")
def test_a_waiter_whose_loop_was_closed_does_not_block_the_name(url: str) -> None:
    """Nor before it is collected, which may never happen."""
    with holdfast.connect(url) as locks:
        held = locks.lock("busy").acquire()
        wait_in_a_loop_that_is_closed(url)
        held.release()
        locks.lock("busy", fair=True).acquire(timeout=10).release()
        assert in_turn(locks, 3) == []


def test_a_waiter_whose_loop_was_closed_leaves_the_queue_once_it_is_collected(url: str) -> None:
    with holdfast.connect(url) as locks:
        held = locks.lock("busy").acquire()
        wait_in_a_loop_that_is_closed(url)
        eventually(lambda: gc.collect() >= 0 and locks.inspect("busy").waiters == 0)
        held.release()
        locks.lock("busy", fair=True).acquire(timeout=0).release()


def test_a_waiter_that_answers_late_keeps_its_place_in_the_queue(url: str) -> None:
    """It is overtaken while its event loop is blocked, and is served next afterwards."""
    blocked, free = threading.Event(), threading.Event()
    order: list[str] = []

    async def late() -> None:
        async with holdfast.aio.connect(url) as locks:
            task = asyncio.create_task(locks.lock("busy", fair=True).acquire())
            while (await locks.inspect("busy")).waiters == 0:
                await asyncio.sleep(0.001)
            blocked.set()
            assert free.wait(10)
            lease = await task
            order.append("late")
            await lease.release()

    with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        held = locks.lock("busy").acquire()
        thread = threading.Thread(target=asyncio.run, args=(late(),))
        thread.start()
        assert blocked.wait(10)
        held.release()
        with others.lock("busy", fair=True, timeout=10):
            order.append("overtakes")
            free.set()
            time.sleep(0.05)
        thread.join(10)
    assert order == ["overtakes", "late"]


def test_break_succeeds_while_clients_come_and_go(url: str) -> None:
    stop = threading.Event()

    def come_and_go() -> None:
        while not stop.is_set():
            with holdfast.connect(url) as locks:
                locks.ping()

    with holdfast.connect(url) as locks:
        others = [holdfast.connect(url) for _ in range(200)]
        for other in others:
            other.ping()
        threads = [threading.Thread(target=come_and_go) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(500):
                lease = locks.lock("x").acquire()
                assert locks.break_("x")
                with pytest.raises(holdfast.LockLost):
                    lease.release()
        finally:
            stop.set()
            for thread in threads:
                thread.join(10)
            for other in others:
                other.close()


def test_a_batch_is_withdrawn_with_its_places_in_queues() -> None:
    store = Store()
    session = MemorySession(store, BLOCKING)
    held = [session.attempt(Claim(f"n{number}", f"us:{number}", 30.0)) for number in range(1000)]
    for attempt in held:
        run(session.acquire(attempt, 1.0))
    waiting, foreign = (session.attempt(Claim(name, owner, 30.0)) for name, owner in (("n0", "us:w"), ("n1", "us:f")))
    contender = session.contender(waiting, 1.0)
    run(contender.wait(0.0))
    answers = run(MemoryKeeper(store, BLOCKING).withdraw([*held, waiting, foreign], 1.0))
    assert answers == [Found.OURS] * 1000 + [Found.GONE, Found.GONE]
    assert store.names == {}


def test_a_waiter_whose_turn_has_come_is_not_overtaken_for_ever() -> None:
    """One client in a tight loop took the lock 100,000 times while three threads of another waited for seconds."""
    session = MemorySession(Store(), BLOCKING)
    waiter, holder = (session.attempt(Claim("a", owner, 30.0)) for owner in ("one:1", "two:1"))
    run(session.acquire(holder, 1.0))
    contender = session.contender(waiter, 1.0)
    run(contender.wait(BLOCKING.now()))
    run(session.release(holder, 1.0))  # its turn has come

    def turned_away() -> bool:
        newcomer = session.attempt(Claim("a", f"two:{uuid.uuid4().int}", 30.0))
        if isinstance(run(session.acquire(newcomer, 1.0)), Busy):
            return True
        run(session.release(newcomer, 1.0))
        return False

    eventually(turned_away, within=1.0)
    assert isinstance(run(session.acquire(waiter, 1.0)), Granted)
