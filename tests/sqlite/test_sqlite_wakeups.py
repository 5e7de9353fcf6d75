"""One wake-up is under way at a time, and none is lost with the claim that received it."""

from __future__ import annotations

import contextlib
import socket

import pytest

from holdfast._runtime import clock
from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import Busy, Granted, SimpleAttempt
from holdfast.engines.sqlite import contender as contenders
from holdfast.engines.sqlite.contender import SqliteContender
from holdfast.engines.sqlite.session import SqliteSession
from holdfast.engines.sqlite.wakeup_socket import FOR_WAITER, send_wakeup
from tests.sqlite.worker import NEVER, make_attempt

TIMEOUT = 5.0


@pytest.fixture(autouse=True)
def _only_wakeups(monkeypatch: pytest.MonkeyPatch) -> None:
    for poll in ("_POLL", "_FIRST_POLL"):
        monkeypatch.setattr(contenders, poll, NEVER)


def take(session: SqliteSession) -> SimpleAttempt:
    attempt = make_attempt("job")
    assert isinstance(run(session.acquire(attempt, TIMEOUT)), Granted)
    return attempt


def give_back(session: SqliteSession, attempt: SimpleAttempt) -> None:
    run(session.release(attempt, TIMEOUT))


def queue_up(session: SqliteSession) -> tuple[SimpleAttempt, SqliteContender]:
    attempt = make_attempt("job")
    assert isinstance(run(session.acquire(attempt, TIMEOUT)), Busy)
    contender = session.contender(attempt, TIMEOUT)
    look(contender)
    return attempt, contender


def look(contender: SqliteContender) -> None:
    """Enter the queue, or read the lock after a wake-up; and not wait for another."""
    run(contender.wait(clock.now()))


def is_woken(contender: SqliteContender) -> bool:
    assert contender._wakeup is not None
    return run(BLOCKING.readable([contender._wakeup.fileno()], clock.now()))


def test_overtaken_waiter_is_woken_by_the_next_release(session: SqliteSession) -> None:
    holder = take(session)
    _, contender = queue_up(session)
    for _ in range(3):
        assert not is_woken(contender)
        give_back(session, holder)
        assert is_woken(contender)
        holder = take(session)
        look(contender)
    run(contender.leave())


def test_release_is_one_statement_while_a_wakeup_is_under_way(session: SqliteSession) -> None:
    holder = take(session)
    _, contender = queue_up(session)
    give_back(session, holder)
    seen: list[str] = []
    connection = session.store(clock.now())._connection
    assert connection is not None
    overtaking = take(session)
    connection.set_trace_callback(seen.append)
    give_back(session, overtaking)
    connection.set_trace_callback(None)
    assert [statement.split()[0] for statement in seen] == ["UPDATE"]
    assert is_woken(contender)
    run(contender.leave())


def test_granted_waiter_wakes_the_one_behind_it(session: SqliteSession) -> None:
    holder = take(session)
    first, contender = queue_up(session)
    _, behind = queue_up(session)
    give_back(session, holder)
    assert (is_woken(contender), is_woken(behind)) == (True, False)
    look(contender)
    assert isinstance(run(session.acquire(first, TIMEOUT)), Granted)
    contender.abandon()
    give_back(session, first)
    assert is_woken(behind)
    run(behind.leave())


@pytest.mark.parametrize("overtaken", [False, True])
def test_waiter_that_leaves_passes_its_wakeup_on(session: SqliteSession, overtaken: bool) -> None:
    holder = take(session)
    _, contender = queue_up(session)
    _, behind = queue_up(session)
    give_back(session, holder)
    if overtaken:
        holder = take(session)
    run(contender.leave())
    if overtaken:
        assert not is_woken(behind)
        give_back(session, holder)
    assert is_woken(behind)
    run(behind.leave())


def test_waiter_uses_the_socket_that_a_granted_one_has_left(session: SqliteSession) -> None:
    names = []
    for _ in range(3):
        holder = take(session)
        attempt, contender = queue_up(session)
        assert contender._wakeup is not None
        names.append(contender._wakeup.name)
        assert not is_woken(contender), "by a message for the one before"
        give_back(session, holder)
        assert isinstance(run(session.acquire(attempt, TIMEOUT)), Granted)
        contender.abandon()
        give_back(session, attempt)
    assert len(set(names)) == 1


def test_socket_of_an_entry_that_stays_is_not_used_again(session: SqliteSession) -> None:
    """Otherwise wake-ups for the entry would reach another claim, and the entry would not be removed."""
    holder = take(session)
    _, abandoned = queue_up(session)
    abandoned.abandon()
    _, contender = queue_up(session)
    give_back(session, holder)
    assert is_woken(contender)
    assert run(session.inspect("job", TIMEOUT)).waiters == 1
    run(contender.leave())


def test_granted_waiter_leaves_the_queue_in_the_same_statement(session: SqliteSession) -> None:
    """Regression: it left in another transaction. If that found the file busy, fair claims behind it waited until its
    entry expired, two seconds later."""
    holder = take(session)
    waiter, contender = queue_up(session)
    give_back(session, holder)
    connection = session.store(clock.now())._connection
    assert connection is not None
    seen: list[str] = []
    connection.set_trace_callback(seen.append)
    assert isinstance(run(session.acquire(waiter, TIMEOUT)), Granted)
    connection.set_trace_callback(None)
    assert len(set(seen)) == 1, seen  # a trigger shows the statement that has caused it once more
    assert not waiter.queued
    give_back(session, waiter)
    assert isinstance(run(session.acquire(make_attempt("job", fair=True), TIMEOUT)), Granted)
    contender.abandon()


def test_waiter_is_woken_while_frozen_ones_have_not_read_their_wakeups(session: SqliteSession) -> None:
    """What a receiver has not read counts against the buffer of the sender, which is one for all."""
    store = session.store(clock.now())
    sender = store.directory.sender
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # as little as there can be
    frozen, awake = store.wakeup_socket(FOR_WAITER), store.wakeup_socket(FOR_WAITER)
    with contextlib.suppress(BlockingIOError):
        for _ in range(1000):
            sender.sendto(b"x" * 1024, store.directory.address(frozen.name))
    with pytest.raises(BlockingIOError):
        sender.sendto(b"y", store.directory.address(awake.name))
    assert send_wakeup(store.directory, awake.name, b"y")
    assert awake.drain() == [b"y"]
    store.close_socket(frozen)
    store.close_socket(awake)
