"""Ctrl-C may interrupt a sync call wherever CPython handles signals: at each of these places, one after another."""

from __future__ import annotations

import gc
import itertools
import threading
import uuid
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast._core.core import Core
from holdfast._core.watchdog import Watchdog
from holdfast._runtime.blocking import BlockingEvent, BlockingWakeup, run
from holdfast._runtime.clock import now
from holdfast.engines.base import Attempt
from tests.support.signal_injector import SOURCE, HandlerInjector, InjectedInterrupt, SignalInjector
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("no_warnings_of_dropped_objects")


def interrupt_everywhere(scenario: Callable[[holdfast.Client, SignalInjector], None]) -> int:
    """Run it with a signal at its first place, its second, …, until it runs without one. Returns the number of places.

    After each run the lock is free, long before its ttl of 30 s or a third of it.
    """
    number = 0
    while True:
        url = f"memory:{uuid.uuid4().hex}"
        injector = SignalInjector(number)
        with holdfast.connect(url) as other, holdfast.connect(url) as client:
            client.ping()
            core = client._opened
            assert core is not None
            try:
                scenario(client, injector)
            except InjectedInterrupt:
                gc.collect(0)
            free = other.lock("a").try_acquire(timeout=5)
            assert free is not None, f"left held by a signal at {injector.interrupted_at}"
            assert core.queue.waiting("a") == 0
        if not injector.interrupted_at:
            return number
        number += 1


def test_interrupted_acquire_leaves_the_lock_free() -> None:
    def scenario(client: holdfast.Client, injector: SignalInjector) -> None:
        lock = client.lock("a")
        with injector:
            lease = lock.acquire(timeout=5)
        lease.release()

    assert interrupt_everywhere(scenario) > 40


def test_interrupted_release_leaves_the_lock_free() -> None:
    def scenario(client: holdfast.Client, injector: SignalInjector) -> None:
        lease = client.lock("a").acquire(timeout=5)
        with injector:
            lease.release()

    assert interrupt_everywhere(scenario) > 10


def test_interrupted_release_of_a_lost_lease_frees_the_lock_before_its_ttl() -> None:
    """Regression: its handle was gone, and the withdrawal of what the engine still had was not noted yet."""

    def scenario(client: holdfast.Client, injector: SignalInjector) -> None:
        lease = client.lock("a", max_hold=0.001).acquire(timeout=5)
        eventually(lambda: not lease.held)
        with injector, suppress(holdfast.LockLost):
            lease.release()

    assert interrupt_everywhere(scenario) > 15


def lose_with_a_signal(kind: str, injector: SignalInjector) -> None:
    """A caller finds that its lease has run out; after a signal there, the hold ends nevertheless."""
    with holdfast.connect(f"memory:{uuid.uuid4().hex}", ttl=0.1) as client:
        lock = client.rwlock("a", renew=False).read if kind == "rwlock" else client.lock("a", renew=False)
        lease, core = lock.acquire(timeout=5), client._opened
        assert core is not None
        with core.lock:  # so this caller is the first to look after the deadline, and not the watchdog
            eventually(lambda: core.now() >= lease._hold.deadline)
            with suppress(InjectedInterrupt), injector:
                _ = lease.held
        with suppress(holdfast.LockLost):
            lease.release()
        event = f"end of the lost hold after a signal at {injector.interrupted_at}"
        eventually(lambda: not (core.live or core.young or core.slotless or core.queue.occupants), event=event)


@pytest.mark.parametrize("kind", ["lock", "rwlock"])
def test_interrupted_loss_is_finished_by_the_watchdog(kind: str) -> None:
    """Regression: the hold counted as lost, so nothing was done about its grant, which was due in each round: the
    watchdog ran without a pause, for as long as the client was open."""
    for number in itertools.count():
        injector = SignalInjector(number)
        lose_with_a_signal(kind, injector)
        if not injector.interrupted_at:
            break
    assert number > 20


def test_interrupted_release_has_leftovers_withdrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: released by a majority, but interrupted before the withdrawal at the other servers was noted."""
    withdrawn = list[Attempt]()
    withdraw = Watchdog.withdraw

    def recorded(watchdog: Watchdog, attempt: Attempt, until: float) -> None:
        withdraw(watchdog, attempt, until)
        withdrawn.append(attempt)

    def scenario(client: holdfast.Client, injector: SignalInjector) -> None:
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
    monkeypatch.setattr("holdfast._core.core._direct", lambda session: None)  # engines of several servers have no such
    assert interrupt_everywhere(scenario) > 15


def test_interrupted_with_statement_leaves_the_lock_free() -> None:
    def scenario(client: holdfast.Client, injector: SignalInjector) -> None:
        lock = client.lock("a")
        with injector, lock:
            pass

    assert interrupt_everywhere(scenario) > 60


def test_interrupted_caller_can_acquire_again() -> None:
    """Nothing of the interrupted call may be taken for a hold or a place in the queue of this process."""

    def scenario(client: holdfast.Client, injector: SignalInjector) -> None:
        lock = client.lock("a")
        try:
            with injector:
                lock.acquire(timeout=5).release()
        except InjectedInterrupt:
            gc.collect(0)
        again = lock.try_acquire(timeout=5)
        assert again is not None, f"this caller is locked out by a signal at {injector.interrupted_at}"
        assert again.held
        again.release()

    assert interrupt_everywhere(scenario) > 60


def test_hold_of_an_interrupted_acquire_is_not_re_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim is withdrawn. If its hold stayed, the same thread would re-enter it: two holders."""
    look_at = Watchdog.look_at

    def interrupted(self: Watchdog, due: float, ttl: float, since: float) -> None:
        monkeypatch.setattr(Watchdog, "look_at", look_at)
        look_at(self, due, ttl, since)
        raise InjectedInterrupt

    store = f"memory:{uuid.uuid4().hex}"
    with holdfast.connect(store) as one, holdfast.connect(store) as two:
        monkeypatch.setattr(Watchdog, "look_at", interrupted)
        with pytest.raises(InjectedInterrupt):
            one.lock("a").acquire()
        other = two.lock("a").acquire(timeout=5)
        assert one.lock("a").try_acquire() is None
        other.release()


def re_enter_and_interrupt(client: holdfast.Client, number: int) -> tuple[HandlerInjector, list[holdfast.Lease]]:
    """A signal handler re-enters the lock at a place of its acquire, keeps the lease, and raises."""
    client.ping()
    lock, leases = client.lock("a"), list[holdfast.Lease]()

    def handle() -> None:
        leases.extend(filter(None, [lock.try_acquire(timeout=0)]))
        raise InjectedInterrupt

    injector = HandlerInjector(number, handle)
    with suppress(InjectedInterrupt), injector:
        lock.acquire(timeout=5)
    return injector, [lease for lease in leases if lease.held]


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
def test_lease_of_a_signal_handler_that_interrupts_its_caller_is_renewed(engine: str, tmp_path: Path) -> None:
    """Regression: it had re-entered a hold that the watchdog was not told of yet. The acquire left the hold to it."""
    kept: list[tuple[str, holdfast.Lease, float]] = []
    with ExitStack() as clients:
        for number in itertools.count():
            url = f"memory:{uuid.uuid4().hex}" if engine == "memory" else f"sqlite:///{tmp_path}/{number}.db"
            client = clients.enter_context(holdfast.connect(url, ttl=6))
            injector, leases = re_enter_and_interrupt(client, number)
            kept += [(str(injector.interrupted_at), lease, lease._hold.deadline) for lease in leases]
            if not injector.handled:
                break
        assert kept
        eventually(lambda: not [place for place, lease, before in kept if lease._hold.deadline <= before])


def test_interrupted_wait_raises_only_the_interrupt() -> None:
    """threading.Condition, interrupted where it takes its lock again, raised 'release unlocked lock' instead."""
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
            assert not each.is_alive(), f"left waiting by a signal at {injector.interrupted_at}"
        if not injector.interrupted_at:
            break
        number += 1
    assert number > 3


def test_interrupted_wakeup_of_the_watchdog_is_repeated_by_the_next_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the watchdog would sleep on, while every caller takes it for woken: leases would expire."""
    wake = BlockingWakeup.set

    def interrupted(self: BlockingWakeup) -> None:
        monkeypatch.setattr(BlockingWakeup, "set", wake)
        raise InjectedInterrupt

    store = f"memory:{uuid.uuid4().hex}"
    with holdfast.connect(store) as client, holdfast.connect(store) as other:
        client.lock("a").acquire().release()
        core = client._opened
        assert core is not None
        eventually(lambda: core.watchdog._wakes_at > 0)  # it sleeps: otherwise no caller would wake it
        forgotten, orphan = (core.new_attempt(client.lock("b")._policy, non_barging=False) for _ in range(2))
        run(core.session.acquire(orphan, 1.0))
        monkeypatch.setattr(BlockingWakeup, "set", interrupted)
        with pytest.raises(InjectedInterrupt):
            core.withdraw(forgotten)
        core.withdraw(orphan)
        other.lock("b").acquire(timeout=5).release()


def test_a_signal_handler_may_use_the_client_that_is_being_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler waited for the lock that its own thread held."""
    with holdfast.connect(f"memory:{uuid.uuid4().hex}") as client:
        make = Core.__init__

        def interrupted(self: Core, *arguments: Any) -> None:
            monkeypatch.setattr(Core, "__init__", make)
            client.lock("in the handler").acquire(timeout=5).release()  # as a handler would, right now
            make(self, *arguments)

        monkeypatch.setattr(Core, "__init__", interrupted)
        client.lock("a").acquire(timeout=5).release()
