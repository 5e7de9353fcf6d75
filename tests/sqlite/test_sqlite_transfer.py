"""A held lock is given to another owner: to a ticket, which belongs to no process, and from it to another client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast._runtime.blocking import run
from holdfast.engines.base import Busy, Found, Granted, SimpleAttempt
from holdfast.engines.sqlite.keeper import SqliteKeeper
from holdfast.engines.sqlite.session import SqliteSession
from tests.sqlite.conftest import TIMEOUT, Worker
from tests.sqlite.worker import make_attempt
from tests.support.forking import in_a_child
from tests.support.waiting import eventually


def ticket(ttl: float = 30.0) -> SimpleAttempt:
    return make_attempt("job", ttl, detached=True)


def given(session: SqliteSession, attempt: SimpleAttempt, from_owner: str) -> Granted:
    granted = run(session.transfer(attempt, from_owner, TIMEOUT))
    assert isinstance(granted, Granted), granted
    return granted


def held(session: SqliteSession, **more: Any) -> tuple[SimpleAttempt, int]:
    attempt = make_attempt("job", **more)
    granted = run(session.acquire(attempt, TIMEOUT))
    assert isinstance(granted, Granted)
    return attempt, granted.token


def test_each_transfer_has_a_new_token_and_one_owner(session: SqliteSession) -> None:
    holder, first = held(session, tokens=17)
    detached, attached = ticket(), make_attempt("job")
    second = given(session, detached, holder.owner)
    assert second.token > first
    assert run(session.renew(holder, 30.0, TIMEOUT)) is Found.STOLEN
    assert run(session.release(holder, TIMEOUT)) is Found.STOLEN
    third = given(session, attached, detached.owner)
    assert third.token > second.token
    (only,) = run(session.inspect("job", TIMEOUT)).holders
    assert (only.owner, only.token) == (attached.owner, third.token)
    assert isinstance(run(session.acquire(make_attempt("job"), TIMEOUT)), Busy)
    assert run(session.release(attached, TIMEOUT)) is Found.OURS


def test_transfer_repeated_after_a_lost_reply_has_the_same_answer(session: SqliteSession) -> None:
    holder, _ = held(session)
    detached, attached = ticket(), make_attempt("job")
    assert given(session, detached, holder.owner) == given(session, detached, holder.owner)
    assert given(session, attached, detached.owner) == given(session, attached, detached.owner)


def test_ticket_is_used_once(session: SqliteSession) -> None:
    holder, _ = held(session)
    detached = ticket()
    given(session, detached, holder.owner)
    given(session, make_attempt("job"), detached.owner)
    assert run(session.transfer(make_attempt("job"), detached.owner, TIMEOUT)) is Found.STOLEN
    run(session.break_("job", TIMEOUT))
    assert run(session.transfer(make_attempt("job"), detached.owner, TIMEOUT)) is Found.GONE


def test_ticket_whose_time_is_over_is_void_although_no_claim_has_come_since(session: SqliteSession) -> None:
    holder, _ = held(session, ttl=1.0)
    detached = ticket(1.0)
    given(session, detached, holder.owner)
    eventually(lambda: not run(session.inspect("job", TIMEOUT)).holders)
    assert run(session.transfer(make_attempt("job"), detached.owner, TIMEOUT)) is Found.GONE


def test_ticket_outlives_the_process_that_made_it(session: SqliteSession, start_worker: Callable[[], Worker]) -> None:
    worker = start_worker()
    worker.ask(do="acquire", name="job")
    owner = worker.ask(do="detach", name="job")["owner"]
    worker.kill()
    assert isinstance(run(session.acquire(make_attempt("job"), TIMEOUT)), Busy)
    attached = make_attempt("job")
    given(session, attached, owner)
    assert run(session.renew(attached, 30.0, TIMEOUT)) is Found.OURS


def test_lock_that_was_attached_ends_with_its_new_process(
    session: SqliteSession, start_worker: Callable[[], Worker]
) -> None:
    holder, _ = held(session)
    detached = ticket()
    given(session, detached, holder.owner)
    worker = start_worker()
    assert worker.ask(do="attach", name="job", owner=detached.owner)["token"]
    worker.kill()
    assert isinstance(run(session.acquire(make_attempt("job"), TIMEOUT)), Granted)


def test_withdrawn_ticket_frees_the_name(session: SqliteSession, keeper: SqliteKeeper) -> None:
    """``detach`` was interrupted: no caller has the ticket."""
    others = [make_attempt(f"other {number}") for number in range(10)]
    for other in others:
        run(session.acquire(other, TIMEOUT))
    holder, _ = held(session)
    detached = ticket()
    given(session, detached, holder.owner)
    assert run(keeper.withdraw([detached, *others], TIMEOUT)) == [Found.OURS] * 11
    assert isinstance(run(session.acquire(make_attempt("job"), TIMEOUT)), Granted)


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_forked_child_cannot_give_away_what_its_parent_holds(session: SqliteSession) -> None:
    holder, _ = held(session)
    assert in_a_child(lambda: run(session.transfer(ticket(), holder.owner, TIMEOUT)) is Found.STOLEN)
    assert run(session.renew(holder, 30.0, TIMEOUT)) is Found.OURS
