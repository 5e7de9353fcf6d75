"""Waiters that die, time out or raise, lost replies, holders that are too late: no notification is swallowed."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

import holdfast
from holdfast._core import parking, shared_looks, states
from holdfast._runtime.blocking import run
from holdfast.engines.base import RequestFailed
from holdfast.engines.memory import registers as memory_registers
from holdfast.engines.registers import Guard, RegisterKey, Stale
from holdfast.primitives.guarded_register import registers_of
from tests.support.waiting import LASTING, eventually

#: In place of 3.5 seconds (s).
PRESENCE: Final = 1.0


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> str:
    """A store whose waiters look often, and are soon counted as gone; but not if the machine stalls for a moment: then
    their notifications would be passed on."""
    monkeypatch.setattr(memory_registers, "PRESENCE", PRESENCE)
    monkeypatch.setattr(shared_looks, "_LOOK", 0.05)
    monkeypatch.setattr(parking, "_MEANWHILE", 0.1)
    return f"memory:{uuid.uuid4().hex}"


@pytest.fixture
def clients(url: str) -> Iterator[Callable[[], holdfast.Client]]:
    opened: list[holdfast.Client] = []

    def connect() -> holdfast.Client:
        opened.append(holdfast.connect(url))
        return opened[-1]

    yield connect
    for client in opened:
        client.close()


class Waiting(threading.Thread):
    """A caller that waits for the condition of the lock ``a``, and then runs ``body`` with the lock."""

    def __init__(
        self, client: holdfast.Client, body: Callable[[Any], object] = lambda lease: None, timeout: float | None = None
    ) -> None:
        super().__init__(daemon=True)
        self._client, self._body, self._timeout = client, body, timeout
        self.lease: Any = None
        self.woken: bool | None = None
        self.error: BaseException | None = None
        self.start()
        eventually(lambda: self.lease is not None and self.lease._hold.state is states.PARKED)

    def run(self) -> None:
        lock = self._client.lock("a")
        try:
            with lock as lease:
                self.lease = lease
                self.woken = self._client.condition(lock).wait(self._timeout)
                self._body(lease)
        except BaseException as error:
            self.error = error


def notify(client: holdfast.Client) -> None:
    lock = client.lock("a")
    with lock:
        client.condition(lock).notify()


def die(lease: Any) -> None:
    """As a process that is killed in its critical section: the lock ends, its entry does not leave the queue."""
    lease._hold.attachment = None


def fail(lease: Any) -> None:
    raise KeyError("a bug")


def test_a_waiter_killed_after_its_grant_does_not_swallow_the_notification(clients: Any) -> None:
    first, second = Waiting(clients(), die), Waiting(clients())
    notify(clients())
    second.join(20)
    assert (first.woken, second.woken, second.error) == (True, True, None)


def test_a_waiter_killed_before_its_grant_does_not_swallow_the_notification(clients: Any) -> None:
    client, other = clients(), clients()
    first, second = Waiting(client), Waiting(other)
    notifier = clients()
    lock = notifier.lock("a")
    with lock:
        notifier.condition(lock).notify()
        client.close()  # while it is notified, and comes back for the lock
        first.join(20)
    second.join(20)
    assert first.woken is None
    assert isinstance(first.error, (holdfast.LockLost, holdfast.UsageError))
    assert second.woken is True


def test_waiters_pass_on_a_notification_though_no_other_caller_takes_the_lock(clients: Any) -> None:
    """The first two in the queue are gone, too."""
    dead = [clients() for _ in range(3)]
    gone = [Waiting(client) for client in dead]
    last = Waiting(clients())
    notifier = clients()
    lock = notifier.lock("a")
    with lock:
        notifier.condition(lock).notify()
        for client in dead:
            client.close()
        for waiter in gone:
            waiter.join(20)
    last.join(20)
    assert last.woken is True


def test_a_body_that_raises_hands_its_notification_to_the_next_waiter(clients: Any) -> None:
    first, second = Waiting(clients(), fail), Waiting(clients())
    notify(clients())
    second.join(20)
    assert isinstance(first.error, KeyError)
    assert second.woken is True


def test_a_notification_counts_more_than_the_time_out_that_came_before_it(clients: Any) -> None:
    """Its time is over, but it waits for the lock; meanwhile it is notified. No other waiter is woken for it."""
    # The lock must be taken before the first one's time is over: else it would be back, and gone.
    first, second = Waiting(clients(), timeout=1.0), Waiting(clients(), timeout=3.0)
    notifier = clients()
    lock = notifier.lock("a")
    with lock:
        eventually(lambda: notifier.lock("a").inspect().waiters >= 1)  # its time is over: it is back for the lock
        notifier.condition(lock).notify()
    first.join(20)
    second.join(20)
    assert (first.woken, second.woken) == (True, False)


def test_a_waiter_in_the_queue_for_the_lock_stays_present(clients: Any) -> None:
    """The lock stays busy for longer than a waiter counts as present without a look."""
    first, second = Waiting(clients()), Waiting(clients(), timeout=4 * PRESENCE)
    notifier = clients()
    lock = notifier.lock("a")
    with lock:
        notifier.condition(lock).notify()
        eventually(lambda: notifier.lock("a").inspect().waiters >= 1)
        time.sleep(2 * PRESENCE)  # what is shown is that nothing happens in this time
    first.join(20)
    second.join(20)
    assert (first.woken, second.woken) == (True, False)


def test_closing_the_client_ends_a_wait(clients: Any) -> None:
    client = clients()
    waiter = Waiting(client)
    client.close()
    waiter.join(5)
    assert isinstance(waiter.error, holdfast.LockLost)
    assert waiter.lease.lost_reason == "closed"


def test_releasing_its_leases_from_another_thread_ends_a_wait(clients: Any) -> None:
    client = clients()
    waiter = Waiting(client)
    assert "waiting" in repr(waiter.lease)
    assert not waiter.lease.lost.wait(0.01)
    waiter.lease.release()
    waiter.join(5)
    assert isinstance(waiter.error, holdfast.NotHeld)
    client.lock("a").acquire(timeout=5).release()


def test_in_a_forked_child_a_lease_that_waits_is_lost(clients: Any) -> None:
    client, other = clients(), clients()
    waiter = Waiting(client)
    child = os.fork()
    if child == 0:
        os._exit(0 if waiter.lease.lost_reason == "forked" and not waiter.lease.held else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    notify(other)
    waiter.join(20)
    assert waiter.woken is True


def test_a_lease_that_came_back_is_renewed_lost_and_reported_as_before(clients: Any) -> None:
    client, lost = clients(), threading.Event()
    lock = client.lock("a", ttl=LASTING, on_lost=lambda lease: lost.set())
    lease = lock.acquire()
    assert not client.condition(lock).wait(timeout=0)
    deadline = lease._hold.deadline
    eventually(lambda: lease._hold.deadline > deadline + 0.1)
    assert not lost.is_set()
    clients().break_("a")
    assert lost.wait(10)
    assert lease.lost_reason == "broken"
    with pytest.raises(holdfast.LockLost):
        lease.release()


def test_max_hold_counts_anew_after_a_wait(clients: Any) -> None:
    client = clients()
    lock = client.lock("a", max_hold=1.0)
    lease = lock.acquire()
    first = lease._hold.ends
    assert first is not None
    assert not client.condition(lock).wait(timeout=1.2)  # longer than max_hold: it is not held meanwhile
    assert lease._hold.ends is not None
    assert lease._hold.ends > first
    assert lease.held
    eventually(lambda: not lease.held)
    with pytest.raises(holdfast.LockLost, match="max_hold"):
        lease.release()


def test_a_lock_lost_before_a_wait_or_a_notify_is_reported(clients: Any) -> None:
    client, other = clients(), clients()
    lock = client.lock("a", renew=False)
    for call in (client.condition(lock).wait, client.condition(lock).notify):
        lease = lock.acquire()
        other.break_("a")
        with other.lock("a"):
            other.condition(other.lock("a")).notify()  # raises the guard
        with pytest.raises((holdfast.LockLost, holdfast.NotHeld)):
            call()
        with pytest.raises(holdfast.LockLost):
            lease.release()


class Unreliable:
    """Registers whose first reply of each kind is lost, after or before the request took effect."""

    def __init__(self, registers: Any, *, after: bool) -> None:
        self._registers = registers
        self._after = after
        self.lost: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._registers, name)
        if name in ("listener", "fused"):
            return method

        async def call(*arguments: Any, **keywords: Any) -> Any:
            if name in self.lost:
                self.lost.remove(name) if self.lost.count(name) > 4 else self.lost.append(name)
                return await method(*arguments, **keywords)
            self.lost.append(name)
            if self._after:
                await method(*arguments, **keywords)
            raise RequestFailed("the reply was lost", may_have_happened=self._after)

        return call


@pytest.mark.parametrize("after", [True, False])
def test_lost_replies_of_every_kind_change_nothing(clients: Any, monkeypatch: pytest.MonkeyPatch, after: bool) -> None:
    class Counter(holdfast.Monitor):
        count: int = 0
        changed = holdfast.condition()

        @holdfast.synchronized
        def add(self) -> int:
            self.count += 1
            self.changed.notify()
            self.changed.wait(timeout=0)
            self.count += 1
            return self.count

    client = clients()
    client.ping()
    unreliable = Unreliable(client._opened.session.registers, after=after)
    monkeypatch.setattr(type(client._opened.session), "registers", unreliable)
    monitor = Counter(client, "a")
    assert [monitor.add() for _ in range(5)] == [2, 4, 6, 8, 10]
    assert {"load", "store"} <= set(unreliable.lost)
    assert monitor.snapshot() == {"count": 10}


def test_an_operation_that_has_lost_its_lock_stores_nothing(clients: Any) -> None:
    other = clients()

    class Counter(holdfast.Monitor):
        count: int = 0

        @holdfast.synchronized
        def add(self, *, late: bool = False) -> None:
            self.count += 1
            if late:
                other.break_("a")
                Counter(other, "a").add()

    monitor = Counter(clients(), "a")
    with pytest.raises(holdfast.LockLost):
        monitor.add(late=True)
    assert monitor.snapshot() == {"count": 1}


class _Delayed:
    """Registers whose first store is interrupted, and arrives when ``arrive`` is called."""

    def __init__(self, registers: Any) -> None:
        self._registers = registers
        self.arrive: Callable[[], Any] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registers, name)

    async def store(self, *arguments: Any, **keywords: Any) -> Any:
        if self.arrive is None:
            self.arrive = lambda: run(self._registers.store(*arguments, **keywords))
            raise KeyboardInterrupt
        return await self._registers.store(*arguments, **keywords)


def test_a_store_that_was_interrupted_and_arrives_late_changes_nothing(
    clients: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the late one would take back what was stored after it, or be taken for it."""
    client = clients()
    first, second = Waiting(clients()), Waiting(clients(), timeout=2.0)
    client.ping()
    delayed = _Delayed(client._opened.session.registers)
    monkeypatch.setattr(type(client._opened.session), "registers", delayed)
    lock = client.lock("a")
    with lock:
        condition = client.condition(lock)
        with pytest.raises(KeyboardInterrupt):
            condition.notify()
        condition.notify()
        assert delayed.arrive is not None
        assert isinstance(delayed.arrive(), Stale)
    first.join(20)
    second.join(20)
    assert (first.woken, second.woken) == (True, False)


class Overtaken:
    """Registers whose first store takes effect, without a reply. Before the second, another holder comes."""

    def __init__(self, hold: Any) -> None:
        self._hold, self._inner = hold, hold.core.session.registers
        self._stores = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def store(self, key: Any, guard: Guard, *rest: Any, **options: Any) -> Any:
        self._stores += 1
        if self._stores > 1:
            await self._hold.core.session.release(self._hold.grant.attempt, 1.0)
            await self._inner.load(key, Guard(guard.token + 1, "another:1"), 1.0)
            return await self._inner.store(key, guard, *rest, **options)
        await self._inner.store(key, guard, *rest, **options)
        raise RequestFailed("the reply was lost", may_have_happened=True)


def test_a_store_that_may_have_happened_is_not_reported_as_a_mere_loss(clients: Any) -> None:
    lease = clients().lock("a").acquire()
    hold = lease._hold
    register = registers_of(hold.core, hold).register(RegisterKey(hold.policy.key, "monitor"))
    run(register.load())
    register.registers = Overtaken(hold)
    with pytest.raises(holdfast.OutcomeUnknown):
        run(register.store(register.written(b"{}")))
