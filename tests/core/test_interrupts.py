"""Ctrl-C may strike a sync call wherever CPython looks for signals: at each of these places, one after another."""

from __future__ import annotations

import gc
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import holdfast
from holdfast._core.core import Core
from holdfast._core.grant import Grant
from holdfast._core.watchdog import Watchdog
from holdfast._runtime.blocking import BlockingEvent, BlockingWakeup, run
from holdfast._runtime.clock import now
from holdfast.engines.base import Attempt
from tests.support.signal_injector import SOURCE, InjectedInterrupt, SignalInjector
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("no_warnings_of_dropped_objects")


def interrupt_everywhere(play: Callable[[holdfast.Client, SignalInjector], None]) -> int:
    """Play it with a signal at its first place, its second, …, until it goes through. After each the lock is free, long
    before its ttl of 30 s or a third of it."""
    number = 0
    while True:
        url = f"memory:{uuid.uuid4().hex}"
        injector = SignalInjector(number)
        with holdfast.connect(url) as stranger, holdfast.connect(url) as client:
            client.ping()
            core = client._opened
            assert core is not None
            try:
                play(client, injector)
            except InjectedInterrupt:
                gc.collect(0)
            free = stranger.lock("a").try_acquire(timeout=5)
            assert free is not None, f"left held by a strike at {injector.interrupted_at}"
            assert core.queue.waiting("a") == 0
        if not injector.interrupted_at:
            return number
        number += 1


def test_acquiring() -> None:
    def play(client: holdfast.Client, injector: SignalInjector) -> None:
        lock = client.lock("a")
        with injector:
            lease = lock.acquire(timeout=5)
        lease.release()

    assert interrupt_everywhere(play) > 50


def test_releasing() -> None:
    def play(client: holdfast.Client, injector: SignalInjector) -> None:
        lease = client.lock("a").acquire(timeout=5)
        with injector:
            lease.release()

    assert interrupt_everywhere(play) > 15


def test_interrupted_release_of_a_lost_lease_frees_the_lock_before_its_ttl() -> None:
    """Regression: its handle was gone, and the withdrawal of what the engine still had was not noted yet."""

    def play(client: holdfast.Client, injector: SignalInjector) -> None:
        lease = client.lock("a", max_hold=0.001).acquire(timeout=5)
        eventually(lambda: not lease.held)
        with injector, suppress(holdfast.LockLost):
            lease.release()

    assert interrupt_everywhere(play) > 15


def test_interrupted_release_has_leftovers_withdrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: released by a majority, but interrupted before the withdrawal at the other servers was noted."""
    withdrawn = list[Attempt]()
    withdraw = Watchdog.withdraw

    def recorded(watchdog: Watchdog, attempt: Attempt, until: float) -> None:
        withdraw(watchdog, attempt, until)
        withdrawn.append(attempt)

    def play(client: holdfast.Client, injector: SignalInjector) -> None:
        withdrawn.clear()
        lease = client.lock("a").acquire(timeout=5)
        attempt = lease._hold.grant.attempt
        with injector, suppress(InjectedInterrupt):
            lease.release()
        del lease  # if its release did not begin, the watchdog withdraws it
        gc.collect(0)
        eventually(lambda: attempt in withdrawn, event=f"withdrawal after a signal at {injector.interrupted_at}")

    monkeypatch.setattr(Watchdog, "withdraw", recorded)
    monkeypatch.setattr(Attempt, "has_leftovers", True)
    assert interrupt_everywhere(play) > 15


def test_the_with_statement() -> None:
    def play(client: holdfast.Client, injector: SignalInjector) -> None:
        lock = client.lock("a")
        with injector, lock:
            pass

    assert interrupt_everywhere(play) > 60


def test_the_same_caller_can_acquire_again() -> None:
    """Nothing of the interrupted call may be taken for a hold or a place in the queue of this process."""

    def play(client: holdfast.Client, injector: SignalInjector) -> None:
        lock = client.lock("a")
        try:
            with injector:
                lock.acquire(timeout=5).release()
        except InjectedInterrupt:
            gc.collect(0)
        again = lock.try_acquire(timeout=5)
        assert again is not None, f"this caller is locked out by a strike at {injector.interrupted_at}"
        assert again.held
        again.release()

    assert interrupt_everywhere(play) > 80


def test_struck_when_the_hold_was_there_but_nobody_knew_it_is_not_re_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim is withdrawn; were its hold left behind, the same thread would re-enter it, and two would believe."""
    watch = Watchdog.watch

    def struck(self: Watchdog, grant: Grant, confirmed: float) -> None:
        monkeypatch.setattr(Watchdog, "watch", watch)
        watch(self, grant, confirmed)
        raise InjectedInterrupt

    store = f"memory:{uuid.uuid4().hex}"
    with holdfast.connect(store) as one, holdfast.connect(store) as two:
        monkeypatch.setattr(Watchdog, "watch", struck)
        with pytest.raises(InjectedInterrupt):
            one.lock("a").acquire()
        other = two.lock("a").acquire(timeout=5)
        assert one.lock("a").try_acquire() is None
        other.release()


def test_struck_while_it_waits_a_caller_sees_nothing_else() -> None:
    """threading.Condition, struck where it takes its lock again, raised 'release unlocked lock' instead."""
    number = 0
    while True:
        event, injector = BlockingEvent(), SignalInjector(number, places=(SOURCE, threading.__file__))
        try:
            with injector:
                assert not run(event.wait(now() + 0.002))
        except InjectedInterrupt:
            pass
        others = [threading.Thread(target=run, args=(event.wait(now() + 30.0),), daemon=True) for _ in range(3)]
        others.append(threading.Thread(target=event.set, daemon=True))
        for each in others:
            each.start()
        for each in others:
            each.join(10)
            assert not each.is_alive(), f"left waiting by a strike at {injector.interrupted_at}"
        if not injector.interrupted_at:
            break
        number += 1
    assert number > 3


def test_struck_while_it_rings_for_the_watchdog_the_next_caller_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would sleep on while everybody believes that it is on its way: leases would run out."""
    ring = BlockingWakeup.set

    def struck(self: BlockingWakeup) -> None:
        monkeypatch.setattr(BlockingWakeup, "set", ring)
        raise InjectedInterrupt

    store = f"memory:{uuid.uuid4().hex}"
    with holdfast.connect(store) as client, holdfast.connect(store) as other:
        client.lock("a").acquire().release()
        core = client._opened
        assert core is not None
        eventually(lambda: core.watchdog._wakes_at > 0)  # it has gone to sleep: else nobody needs to ring
        forgotten, orphan = (core.new_attempt(client.lock("b")._policy, non_barging=False) for _ in range(2))
        run(core.session.acquire(orphan, 1.0))
        monkeypatch.setattr(BlockingWakeup, "set", struck)
        with pytest.raises(InjectedInterrupt):
            core.withdraw(forgotten)
        core.withdraw(orphan)
        other.lock("b").acquire(timeout=5).release()


def test_a_signal_handler_may_use_the_client_that_is_being_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waited for the lock that its own thread held."""
    with holdfast.connect(f"memory:{uuid.uuid4().hex}") as client:
        make = Core.__init__

        def interrupted(self: Core, *arguments: Any) -> None:
            monkeypatch.setattr(Core, "__init__", make)
            client.lock("in the handler").acquire(timeout=5).release()  # as a handler would, right now
            make(self, *arguments)

        monkeypatch.setattr(Core, "__init__", interrupted)
        client.lock("a").acquire(timeout=5).release()
