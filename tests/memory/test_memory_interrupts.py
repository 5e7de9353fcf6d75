"""Signals in the middle of the memory engine's operations: handlers that raise, and handlers that use a lock."""

from __future__ import annotations

import gc
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

import holdfast
from holdfast._runtime.blocking import BLOCKING, run
from holdfast._runtime.clock import now
from holdfast.engines.base import Busy, Claim, Granted, SimpleAttempt
from holdfast.engines.memory import contender, keeper, session, store, view
from holdfast.engines.memory.keeper import MemoryKeeper
from holdfast.engines.memory.session import MemorySession
from holdfast.engines.memory.store import Store
from tests.support.signal_injector import HandlerInjector, InjectedInterrupt, SignalInjector

HERE = tuple(str(module.__file__) for module in (contender, keeper, session, store, view))
TTL = 3600.0


@pytest.fixture(autouse=True)
def _dropped_coroutines_warn() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a coroutine that was interrupted before its first step
        yield
        gc.collect()


class Bench:
    """A store with two attempts on one name, each on a session of its own."""

    def __init__(self) -> None:
        self.store = Store()
        self.ours, self.other = MemorySession(self.store, BLOCKING), MemorySession(self.store, BLOCKING)
        self.keeper = MemoryKeeper(self.store, BLOCKING)
        self.attempt = self.ours.attempt(Claim("a", "us:1", TTL))
        self.rival = self.other.attempt(Claim("a", "them:1", TTL, fair=True))
        self.contender = self.ours.contender(self.attempt, 1.0)

    def wait_and_acquire(self) -> Granted:
        """As the core does it, for the rival."""
        contender, deadline = self.other.contender(self.rival, 1.0), now() + 20.0
        while isinstance(answer := run(self.other.acquire(self.rival, 1.0)), Busy):
            assert now() < deadline, "still busy"
            run(contender.wait(deadline))
        return answer

    def clean_up(self) -> None:
        """As the core does it, after an interruption."""
        self.contender.abandon()
        run(self.keeper.withdraw([self.attempt], 1.0))


def acquire(bench: Bench) -> None:
    run(bench.ours.acquire(bench.attempt, 1.0))


def release(bench: Bench) -> None:
    run(bench.ours.release(bench.attempt, 1.0))


def wait(bench: Bench) -> None:
    run(bench.contender.wait(now() + 0.001))


def abandon(bench: Bench) -> None:
    bench.contender.abandon()


def withdraw(bench: Bench) -> None:
    run(bench.keeper.withdraw([bench.attempt], 1.0))


def renew(bench: Bench) -> None:
    run(bench.keeper.renew([bench.attempt], TTL, 1.0))


def hold(bench: Bench) -> None:
    assert isinstance(run(bench.ours.acquire(bench.attempt, 1.0)), Granted)


def queue_before_the_rival(bench: Bench) -> None:
    """Wait first, for a third attempt, which then releases the lock."""
    third = bench.ours.attempt(Claim("a", "third:1", TTL))
    run(bench.ours.acquire(third, 1.0))
    run(bench.contender.wait(0.0))
    run(bench.ours.release(third, 1.0))


def nothing(bench: Bench) -> None:
    pass


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.mark.parametrize(
    "prepare, operation",
    [
        (nothing, acquire),
        (hold, release),
        (hold, renew),
        (hold, withdraw),
        (queue_before_the_rival, acquire),
        (queue_before_the_rival, wait),
        (queue_before_the_rival, abandon),
        (queue_before_the_rival, withdraw),
    ],
)
def test_one_signal_at_each_instruction_does_not_block_the_next_waiter(
    prepare: Callable[[Bench], None], operation: Callable[[Bench], None], thread: ThreadPoolExecutor
) -> None:
    number = 0
    while True:
        bench = Bench()
        prepare(bench)
        waiting: Future[Granted] | None = None
        if prepare is not nothing:
            waiting = thread.submit(bench.wait_and_acquire)
            if prepare is hold:
                while not bench.store.names["a"].queue:
                    pass
        before = bench.store.names["a"].token if prepare is hold else 0
        injector = SignalInjector(number, None, HERE)
        try:
            with injector:
                operation(bench)
        except InjectedInterrupt:
            pass
        bench.clean_up()
        granted = (waiting or thread.submit(bench.wait_and_acquire)).result(25)
        assert granted.token > before
        assert run(bench.other.release(bench.rival, 1.0)).name == "OURS"
        gc.collect(0)
        assert bench.store.names == {}, f"left behind by a signal at {injector.interrupted_at}"
        if not injector.interrupted_at:
            break
        number += 1
    assert number >= 3


def test_a_signal_handler_may_use_the_lock_that_its_thread_uses() -> None:
    """At each instruction: never a deadlock, never two holders, and tokens only grow."""
    number = 0
    while True:
        bench, tokens = Bench(), [0]
        rival = bench.other.attempt(Claim("a", "them:1", TTL))

        def handle(bench: Bench = bench, tokens: list[int] = tokens, rival: SimpleAttempt = rival) -> None:
            answer = run(bench.other.acquire(rival, 1.0))
            if isinstance(answer, Granted):
                assert answer.token > tokens[-1]
                tokens.append(answer.token)
                run(bench.other.release(rival, 1.0))

        handling = HandlerInjector(number, handle, HERE)
        with handling:
            answer = run(bench.ours.acquire(bench.attempt, 1.0))
            assert isinstance(answer, Granted)
            assert answer.token > tokens[-1], f"a handler at {handling.interrupted_at} was granted a newer one"
            tokens.append(answer.token)
            assert run(bench.ours.release(bench.attempt, 1.0)).name == "OURS"
            run(bench.contender.wait(0.0))
            bench.contender.abandon()
        assert bench.store.names == {}
        if not handling.handled:
            break
        number += 1
    assert number > 15


def test_a_signal_handler_that_keeps_the_lock_keeps_its_thread_out() -> None:
    number = 0
    while True:
        bench = Bench()
        rival = bench.other.attempt(Claim("a", "them:1", TTL))
        granted: list[bool] = []

        def handle(bench: Bench = bench, rival: SimpleAttempt = rival, granted: list[bool] = granted) -> None:
            granted.append(isinstance(run(bench.other.acquire(rival, 1.0)), Granted))

        handling = HandlerInjector(number, handle, HERE)
        with handling:
            granted.append(isinstance(run(bench.ours.acquire(bench.attempt, 1.0)), Granted))
        assert granted.count(True) == 1, f"a handler at {handling.interrupted_at}: {granted}"
        if not handling.handled:
            break
        number += 1
    assert number > 5


def test_a_signal_handler_may_wait_for_a_lock_that_another_thread_holds() -> None:
    """At each instruction of its own thread, the other thread can go on and release."""
    url = f"memory:{uuid.uuid4().hex}"
    with holdfast.connect(url) as locks, holdfast.connect(url) as others, ThreadPoolExecutor(1) as thread:
        lock, number = locks.lock("main", reentrant=False), 0
        locks.ping()
        while True:
            held, waiting = others.lock("other").acquire(), threading.Event()

            def release(held: holdfast.Lease = held, waiting: threading.Event = waiting) -> None:
                waiting.wait(10)
                held.release()

            def handle(waiting: threading.Event = waiting) -> None:
                waiting.set()
                locks.lock("other", reentrant=False).acquire(timeout=10).release()

            releasing = thread.submit(release)
            handling = HandlerInjector(number, handle, HERE)
            with handling:
                lock.acquire(timeout=5).release()
            waiting.set()
            releasing.result(15)
            if not handling.handled:
                break
            number += 1
    assert number > 5
