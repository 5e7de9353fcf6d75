"""Read-write locks and semaphores in a store: what waiters that do not ask any more cost, and what stays behind."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

import holdfast
from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import READ, WRITE, Busy, Claim, Granted, Mode, SimpleAttempt, permits
from holdfast.engines.memory import shared_names
from holdfast.engines.memory.contender import MemoryContender
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.engines.memory.session import MemorySession
from holdfast.engines.memory.store import Place, Store


def _attempt(owner: str, mode: Mode) -> SimpleAttempt:
    return SimpleAttempt(Claim("it", owner, 60.0, mode=mode))


def _queued(store: Store, owner: str, mode: Mode, now: float) -> MemoryContender:
    """A waiter that joined the queue at ``now``, and has not asked since."""
    contender = MemoryContender(MemorySession(store, BLOCKING), _attempt(owner, mode))
    shared_names.joined(store, Place(owner, b"{}", 0.0, weakref.ref(contender), mode), "it", now)
    return contender


@pytest.mark.parametrize(
    "held, waiting, arriving",
    [(READ, WRITE, READ), (permits(1, 3), permits(3, 3), permits(1, 3))],
    ids=["read", "permits"],
)
def test_waiter_that_has_not_asked_for_two_seconds_is_passed_over_until_it_asks(
    held: Mode, waiting: Mode, arriving: Mode
) -> None:
    store, first = Store(), _attempt("first", held)
    assert isinstance(shared_names.acquire(store, first, 100.0), Granted)
    waiter = _queued(store, "waiter", waiting, 100.0)
    assert isinstance(shared_names.acquire(store, _attempt("a", arriving), 101.9), Busy)
    assert isinstance(shared_names.acquire(store, _attempt("b", arriving), 102.1), Granted)
    assert isinstance(shared_names.acquire(store, waiter._attempt, 102.2), Busy)
    assert isinstance(shared_names.acquire(store, _attempt("c", arriving), 102.3), Busy), "it asked, and waits again"


def test_waiter_that_is_garbage_is_passed_over_at_once() -> None:
    store = Store()
    shared_names.acquire(store, _attempt("first", READ), 100.0)
    waiter: Any = _queued(store, "waiter", WRITE, 100.0)
    assert isinstance(shared_names.acquire(store, _attempt("a", READ), 100.1), Busy)
    del waiter
    assert isinstance(shared_names.acquire(store, _attempt("a", READ), 100.1), Granted)


def test_look_of_one_of_many_waiters_ends_at_the_first_that_it_waits_for() -> None:
    """Regression: 2,000 waiters of one semaphore looked at all before them, all the time, and took two minutes."""
    store = Store()
    shared_names.acquire(store, _attempt("first", permits(1, 2)), 100.0)
    waiters = [_queued(store, f"waiter {number}", permits(2, 2), 100.0) for number in range(100)]
    record = store.names["it"]
    assert record.shared is not None
    before = record.waiting_before("waiter 99", 100.0)
    assert not record.shared.grants(permits(2, 2), before)
    assert len(list(before)) == 99, "there was no room, so it had no reason to look"
    before = record.waiting_before("waiter 99", 100.0)
    assert not record.shared.grants(permits(1, 2), before)
    assert len(list(before)) == 98, "the first of them decides"
    assert len(waiters) == len(record.queue)


def test_repeated_acquire_extends_what_is_held_and_has_the_same_token() -> None:
    store, attempt = Store(), _attempt("owner", permits(2, 3))
    first = shared_names.acquire(store, attempt, 100.0)
    assert isinstance(first, Granted)
    assert shared_names.acquire(store, attempt, 130.0) == first
    record = store.names["it"]
    assert record.shared is not None
    assert [(share.owner, share.expires) for share in record.shared.shares] == [("owner", 190.0)]


def test_read_write_lock_that_is_free_leaves_nothing_and_a_semaphore_its_size() -> None:
    store = Store()
    session = MemorySession(store, BLOCKING)
    for mode in (READ, WRITE):
        attempt = session.attempt(Claim("rw", "owner", 5.0, mode=mode))
        run(session.acquire(attempt, 1.0))
        run(session.release(attempt, 1.0))
    assert "rw" not in store.names
    attempt = session.attempt(Claim("it", "owner", 5.0, mode=permits(1, 3)))
    run(session.acquire(attempt, 1.0))
    run(session.release(attempt, 1.0))
    state = run(session.inspect("it", 1.0))
    assert (state.kind, state.size, state.free) == ("semaphore", 3, 3)


def test_tokens_of_a_read_write_lock_grow_although_the_store_forgets_it() -> None:
    with holdfast.connect("memory:forgets") as client:
        rwlock, tokens = client.rwlock("it"), []
        for _ in range(3):
            with rwlock.write as lease:
                tokens.append(lease.token)
            with rwlock.read as lease:
                assert lease.token >= tokens[-1]
    assert tokens == sorted(set(tokens))


def test_plain_lock_may_take_the_name_of_a_read_write_lock_that_expired() -> None:
    session = MemoryEngine("expired").session(BLOCKING)
    reader = session.attempt(Claim("it", "reader", 0.001, mode=READ))
    run(session.acquire(reader, 1.0))
    until = BLOCKING.now() + 0.002
    while BLOCKING.now() < until:
        pass
    assert isinstance(run(session.acquire(session.attempt(Claim("it", "owner", 5.0)), 1.0)), Granted)
