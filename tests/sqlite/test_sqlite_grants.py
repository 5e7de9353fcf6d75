"""One process, one session: the answers of each operation of the engine port."""

from __future__ import annotations

import time
from typing import Any

import pytest

from holdfast._runtime import clock
from holdfast._runtime.blocking import run
from holdfast.engines.base import Busy, Found, Granted
from holdfast.engines.sqlite import operations, statements
from holdfast.engines.sqlite import store as stores
from holdfast.engines.sqlite.keeper import SqliteKeeper
from holdfast.engines.sqlite.session import SqliteSession
from holdfast.errors import InvalidName, UsageError
from tests.sqlite.conftest import MakeSession
from tests.sqlite.worker import make_attempt, obtain


def token_of(answer: Granted | Busy) -> int:
    assert isinstance(answer, Granted)
    return answer.token


def store_write(session: SqliteSession, statement: str, *parameters: str | int) -> int:
    return session.store(clock.now()).write(statement, parameters)


def test_name_is_held_by_one_claim_until_its_release(session: SqliteSession) -> None:
    first, second = make_attempt("job"), make_attempt("job")
    token = token_of(run(session.acquire(first, 1.0)))
    busy = run(session.acquire(second, 1.0))
    assert isinstance(busy, Busy)
    assert busy.remaining == pytest.approx(30.0, abs=10.0)
    assert run(session.release(second, 1.0)) is Found.STOLEN
    assert run(session.release(first, 1.0)) is Found.OURS
    assert run(session.release(first, 1.0)) is Found.GONE
    assert token_of(run(session.acquire(second, 1.0))) > token


def test_repeated_acquire_has_the_same_token_and_never_shortens(session: SqliteSession) -> None:
    attempt = make_attempt("job", 30.0, tokens=16)
    token = token_of(run(session.acquire(attempt, 1.0)))
    attempt.claim = attempt.claim._replace(ttl=5.0)
    assert token_of(run(session.acquire(attempt, 1.0))) == token
    assert (run(session.inspect("job", 1.0)).remaining or 0.0) > 20.0
    attempt.claim = attempt.claim._replace(ttl=60.0)
    assert token_of(run(session.acquire(attempt, 1.0))) == token
    assert (run(session.inspect("job", 1.0)).remaining or 0.0) > 50.0


def test_tokens_are_reserved_in_blocks_and_start_at_the_clock(session: SqliteSession) -> None:
    before = time.time_ns() // 1000
    attempt = make_attempt("job", tokens=16)
    last = token_of(run(session.acquire(attempt, 1.0)))
    assert before + 15 <= last <= time.time_ns() // 1000 + 15
    run(session.release(attempt, 1.0))
    again = make_attempt("job", tokens=16)
    assert token_of(run(session.acquire(again, 1.0))) - 15 > last


def test_token_ahead_of_the_clock_is_still_exceeded(session: SqliteSession) -> None:
    attempt = make_attempt("job")
    run(session.acquire(attempt, 1.0))
    run(session.release(attempt, 1.0))
    ahead = (time.time_ns() // 1000) + 10**12
    store_write(session, "UPDATE lock SET token = ? WHERE name = ?", ahead, "job")
    assert token_of(run(session.acquire(make_attempt("job", tokens=4), 1.0))) == ahead + 4


def test_renew_extends_never_shortens_never_recreates(session: SqliteSession, keeper: SqliteKeeper) -> None:
    held, other, gone = make_attempt("held", 10.0), make_attempt("held"), make_attempt("gone")
    run(session.acquire(held, 1.0))
    run(session.acquire(gone, 1.0))
    run(session.release(gone, 1.0))
    assert run(keeper.renew([held, other, gone], 30.0, 1.0)) == [Found.OURS, Found.STOLEN, Found.GONE]
    assert (run(session.inspect("held", 1.0)).remaining or 0.0) > 20.0
    assert run(session.renew(held, 1.0, 1.0)) == Found.OURS
    assert (run(session.inspect("held", 1.0)).remaining or 0.0) > 20.0
    assert run(session.inspect("gone", 1.0)).holders == ()
    assert run(session.renew(make_attempt("never"), 30.0, 1.0)) == Found.GONE
    assert run(session.inspect("never", 1.0)).token is None


def test_expired_lease_is_granted_again_and_reported_to_its_owner(session: SqliteSession) -> None:
    slow, next_one = make_attempt("job", 1.2), make_attempt("job")
    token = token_of(run(session.acquire(slow, 1.0)))
    assert run(session.inspect("job", 1.0)).holders != ()
    granted = run(obtain(session, next_one, clock.now() + 5.0))
    assert granted is not None
    assert granted.token > token
    assert run(session.renew(slow, 30.0, 1.0)) == Found.STOLEN
    assert run(session.release(slow, 1.0)) is Found.STOLEN


def test_withdraw_leaves_neither_lock_nor_queue_place(session: SqliteSession, keeper: SqliteKeeper) -> None:
    holder, waiter = make_attempt("job"), make_attempt("job")
    run(session.acquire(holder, 1.0))
    contender = session.contender(waiter, 1.0)
    run(contender.wait(clock.now() + 0.01))
    assert run(session.inspect("job", 1.0)).waiters == 1
    contender.abandon()
    assert run(keeper.withdraw([waiter], 1.0)) == [Found.STOLEN]
    assert run(session.inspect("job", 1.0)).waiters == 0
    assert run(keeper.withdraw([holder], 1.0)) == [Found.OURS]
    assert run(session.inspect("job", 1.0)).holders == ()


def test_break_frees_the_lock_and_uses_up_its_token(session: SqliteSession) -> None:
    attempt = make_attempt("job")
    token = token_of(run(session.acquire(attempt, 1.0)))
    assert run(session.break_("job", 1.0))
    state = run(session.inspect("job", 1.0))
    assert state.holders == ()
    assert (state.token or 0) > token
    assert run(session.renew(attempt, 30.0, 1.0)) == Found.GONE
    assert token_of(run(session.acquire(make_attempt("job"), 1.0))) > (state.token or 0)
    assert not run(session.break_("never", 1.0))


def test_tokens_keep_growing_after_a_sweep_of_the_row(make_session: MakeSession) -> None:
    session = make_session(token_ttl=0.0)
    attempt = make_attempt("job")
    token = token_of(run(session.acquire(attempt, 1.0)))
    run(session.release(attempt, 1.0))
    run(session.close())
    again = make_session(token_ttl=0.0)
    assert run(again.inspect("job", 1.0)).token is None
    assert token_of(run(again.acquire(make_attempt("job"), 1.0))) > token


def test_held_row_survives_the_sweep(make_session: MakeSession) -> None:
    session = make_session(token_ttl=0.0)
    token = token_of(run(session.acquire(make_attempt("job", 600.0), 1.0)))
    session.store(clock.now()).run_housekeeping(clock.now() + 60.0)
    assert run(session.inspect("job", 1.0)).token == token


def test_inspect_and_names_show_held_locks(session: SqliteSession) -> None:
    description = b'{"host": "here", "pid": 7, "thread": "main", "program": "test", "else": 1}'
    attempt = make_attempt("shop:1", 20.0, description=description)
    token = token_of(run(session.acquire(attempt, 1.0)))
    run(session.acquire(make_attempt("shop:2", description=b"\xff not JSON"), 1.0))
    run(session.acquire(make_attempt("shoq"), 1.0))
    gone = make_attempt("shop:3")
    run(session.acquire(gone, 1.0))
    run(session.release(gone, 1.0))
    (holder,) = run(session.inspect("shop:1", 1.0)).holders
    assert (holder.owner, holder.host, holder.pid, holder.thread, holder.program, holder.token, holder.count) == (
        (attempt.owner, "here", 7, "main", "test", token, 1)
    )
    assert holder.until == pytest.approx(time.time() + 20.0, abs=10.0)
    assert run(session.inspect("shop:2", 1.0)).holders[0].host is None

    async def names(prefix: str) -> list[str]:
        return [name async for name in session.names(prefix, 1.0)]

    assert run(names("shop:")) == ["shop:1", "shop:2"]
    assert run(names("")) == ["shop:1", "shop:2", "shoq"]


def test_names_are_listed_page_by_page(session: SqliteSession) -> None:
    expected = [f"n{i:04}" for i in range(600)]
    for name in expected:
        run(session.acquire(make_attempt(name), 1.0))

    async def names() -> list[str]:
        return [name async for name in session.names("n", 1.0)]

    assert run(names()) == expected


@pytest.mark.parametrize("kind", ["fair", "non_barging"])
def test_fair_or_non_barging_claim_does_not_overtake(session: SqliteSession, kind: str) -> None:
    holder, waiter, late = make_attempt("job"), make_attempt("job", fair=True), make_attempt("job", **{kind: True})
    run(session.acquire(holder, 1.0))
    contender = session.contender(waiter, 1.0)
    run(contender.wait(clock.now() + 0.01))
    run(session.release(holder, 1.0))
    assert run(session.acquire(late, 1.0)) == Busy(None)
    assert isinstance(run(session.acquire(waiter, 1.0)), Granted)
    run(contender.leave())
    run(session.release(waiter, 1.0))
    assert isinstance(run(session.acquire(late, 1.0)), Granted)


def test_barging_claim_may_overtake(session: SqliteSession) -> None:
    holder, waiter = make_attempt("job"), make_attempt("job", fair=True)
    run(session.acquire(holder, 1.0))
    contender = session.contender(waiter, 1.0)
    run(contender.wait(clock.now() + 0.01))
    run(session.release(holder, 1.0))
    assert isinstance(run(session.acquire(make_attempt("job"), 1.0)), Granted)
    run(contender.leave())


def test_silent_waiter_does_not_block_the_queue_and_keeps_its_place(session: SqliteSession) -> None:
    holder, silent, late = make_attempt("job"), make_attempt("job", fair=True), make_attempt("job", fair=True)
    run(session.acquire(holder, 1.0))
    contender = session.contender(silent, 1.0)
    run(contender.wait(clock.now() + 0.01))
    run(session.release(holder, 1.0))
    store_write(session, "UPDATE queue SET expires = 0 WHERE owner = ?", silent.owner)
    assert isinstance(run(session.acquire(late, 1.0)), Granted)
    run(session.release(late, 1.0))
    store_write(session, statements.STAY, 2**62, "job", silent.owner)
    assert run(session.acquire(make_attempt("job", fair=True), 1.0)) == Busy(None)
    assert isinstance(run(session.acquire(silent, 1.0)), Granted)
    run(contender.leave())


def test_release_without_waiters_is_one_statement(session: SqliteSession) -> None:
    attempt = make_attempt("job")
    run(session.acquire(attempt, 1.0))
    run(session.release(attempt, 1.0))
    seen: list[str] = []
    connection = session.store(clock.now())._connection
    assert connection is not None
    connection.set_trace_callback(seen.append)
    run(session.acquire(again := make_attempt("job"), 1.0))
    assert len(seen) == 1, seen
    assert seen[0].split()[0] == "INSERT"
    run(session.release(again, 1.0))
    assert len(seen) == 2, seen
    assert seen[1].split()[0] == "UPDATE"
    connection.set_trace_callback(None)


def pair(session: SqliteSession, owner: str, description: bytes = b"{}", ttl: float = 30.0) -> tuple[Any, ...]:
    """The row while it is held by a direct acquire; the name is free afterwards."""
    before = int(clock.now() * 1_000_000)
    token = session.acquire_directly("job", owner, description, ttl, 1.0)
    assert isinstance(token, int)
    ((expires, stored, *row),) = session.store(clock.now()).read(
        "SELECT expires, token, owner, process, boot, ttl, description FROM lock WHERE name = 'job'", ()
    )
    assert before + int(ttl * 1_000_000) <= expires <= int((clock.now() + ttl) * 1_000_000)
    assert stored == token
    assert session.release_directly("job", owner, 1.0) is Found.OURS
    return tuple(row)


def test_name_that_was_last_granted_here_is_taken_by_changing_less(session: SqliteSession) -> None:
    pair(session, "one")
    seen: list[str] = []
    connection = session.store(clock.now())._connection
    assert connection is not None
    connection.set_trace_callback(seen.append)
    store = session.store(clock.now())
    assert pair(session, "two") == ("two", store.process, store.boot, 30_000_000, b"{}")
    connection.set_trace_callback(None)
    assert "process" not in seen[0]


@pytest.mark.parametrize(
    "between",
    [
        pytest.param("UPDATE lock SET token = token + 1, process = 'another', boot = 'another'", id="another grant"),
        pytest.param("INSERT INTO semaphore VALUES ('job', 1, 0); DELETE FROM semaphore", id="a semaphore"),
        pytest.param("UPDATE lock SET ttl = 60000000", id="a longer renewal"),
        # Of a name that was free for long; the grant is remembered here.
        pytest.param("DELETE FROM lock", id="housekeeping"),
    ],
)
def test_row_is_complete_whatever_was_done_to_it_since_the_last_grant_here(
    session: SqliteSession, between: str
) -> None:
    """A grant that leaves out what it takes to be there would be of another process, or of none."""
    pair(session, "one")
    for statement in between.split(";"):
        store_write(session, statement)
    store = session.store(clock.now())
    assert pair(session, "two") == ("two", store.process, store.boot, 30_000_000, b"{}")


def test_row_has_the_description_and_ttl_of_its_own_grant(session: SqliteSession) -> None:
    store = session.store(clock.now())
    for number, (description, ttl) in enumerate([(b"{}", 30.0), (b'{"pid":1}', 30.0), (b'{"pid":1}', 5.0)] * 2):
        owner = f"owner {number}"
        expected = (owner, store.process, store.boot, int(ttl * 1_000_000), description)
        assert pair(session, owner, description, ttl) == expected


def test_busy_answer_is_two_statements_once_the_name_was_found_busy(session: SqliteSession) -> None:
    """The attempt to take it again is not repeated by a caller that tries from time to time."""
    pair(session, "one")
    run(session.acquire(make_attempt("job"), 1.0))
    assert isinstance(session.acquire_directly("job", "two", b"{}", 30.0, 1.0), Busy)
    seen: list[str] = []
    connection = session.store(clock.now())._connection
    assert connection is not None
    connection.set_trace_callback(seen.append)
    assert isinstance(session.acquire_directly("job", "three", b"{}", 30.0, 1.0), Busy)
    connection.set_trace_callback(None)
    assert [statement.split()[0] for statement in seen] == ["INSERT", "SELECT"]


def test_grants_that_are_remembered_are_few(session: SqliteSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_MOST_REMEMBERED", 3)
    for number in range(10):
        session.acquire_directly(f"job {number}", "one", b"{}", 30.0, 1.0)
        remembered = session.store(clock.now()).last_grants
        assert (f"job {number}", 30_000_000, b"{}") in remembered
        assert len(remembered) <= 3


def test_row_of_another_kernel_expires_a_ttl_after_first_seen(session: SqliteSession) -> None:
    foreign = make_attempt("job", 0.3)
    run(session.acquire(foreign, 1.0))
    store_write(session, "UPDATE lock SET boot = ?, expires = ?, process = ?", "elsewhere", 10**18, "0" * 32)
    started = clock.now()
    assert run(session.acquire(make_attempt("job"), 1.0)) == Busy(0.3)
    # A second inspection, from any session, does not restart the wait.
    assert (run(session.inspect("job", 1.0)).remaining or 0.0) <= 0.3
    assert run(obtain(session, make_attempt("job"), started + 5.0)) is not None
    assert 0.3 <= clock.now() - started < 0.3 + 1.5


def test_renewal_by_a_foreign_holder_restarts_the_wait(session: SqliteSession) -> None:
    run(session.acquire(make_attempt("job", 30.0), 1.0))
    store_write(session, "UPDATE lock SET boot = ?, expires = ?", "elsewhere", 5)
    run(session.acquire(make_attempt("job"), 1.0))
    store_write(session, "UPDATE lock SET boot = ?, expires = ?", "elsewhere", 6)
    busy = run(session.acquire(make_attempt("job"), 1.0))
    assert busy == Busy(30.0)


def test_row_renewed_after_it_was_judged_is_not_taken(session: SqliteSession) -> None:
    """The statement that takes the row names the owner *and* the expiry that were judged."""
    slow, thief = make_attempt("job", 30.0), make_attempt("job")
    run(session.acquire(slow, 1.0))
    store = session.store(clock.now())
    row = operations.look(store, "job")
    assert row is not None
    run(session.renew(slow, 60.0, 1.0))
    wall = time.time_ns() // 1000
    assert operations._try(store, 0, thief, wall, row.token + 1, row.owner, row.expires) == 0
    assert run(session.renew(slow, 1.0, 1.0)) == Found.OURS


def test_names_are_never_interpreted_as_sql(session: SqliteSession) -> None:
    for name in ("x'; DROP TABLE lock; --", "a\0b", "%", "é" * 256, "../../etc"):
        attempt = make_attempt(name)
        assert isinstance(run(session.acquire(attempt, 1.0)), Granted)
        assert isinstance(run(session.acquire(make_attempt(name), 1.0)), Busy)
        assert run(session.release(attempt, 1.0)) is Found.OURS


def test_names_that_cannot_be_encoded_and_unknown_options_are_refused(path: str) -> None:
    from holdfast.engines.sqlite.engine import connect

    with pytest.raises(InvalidName):
        connect(path, {}).validate_name("\ud800")
    with pytest.raises(UsageError, match="token_ttl"):
        connect(path, {"token_tll": 3})


def test_ping_fails_if_the_file_cannot_be_written(session: SqliteSession) -> None:
    run(session.ping(1.0))
    store = session.store(clock.now())
    assert store._connection is not None
    store._connection.execute("PRAGMA query_only = 1")
    from holdfast.errors import EngineRefused

    with pytest.raises(EngineRefused, match="read-only"):
        run(session.ping(1.0))
