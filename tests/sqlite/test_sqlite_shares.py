"""Read-write locks and semaphores in a lock file: processes that die or freeze between steps, and earlier versions."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from typing import Any, Final

import pytest

from holdfast._runtime import clock
from holdfast._runtime.blocking import run
from holdfast.engines.base import EXCLUSIVE, READ, WRITE, Busy, Claim, Found, Granted, Mode, SimpleAttempt, permits
from holdfast.engines.sqlite import share_statements, shares, statements
from holdfast.engines.sqlite.keeper import SqliteKeeper
from holdfast.engines.sqlite.session import SqliteSession
from holdfast.errors import EngineRefused
from tests.sqlite.conftest import TIMEOUT, MakeSession, Worker
from tests.sqlite.worker import make_attempt
from tests.support.forking import in_a_child
from tests.support.signal_injector import SOURCE, InjectedInterrupt, SignalInjector

#: A waiter that is dead or frozen delays others by at most this, and a busy machine by the rest (s).
DELAY: Final = 2.0 + TIMEOUT
ONE: Final = permits(1, 2)
PLACES: Final = (f"{SOURCE}/engines/sqlite/",)


def of(mode: Mode, ttl: float = 30.0) -> SimpleAttempt:
    return make_attempt("job", ttl, mode=mode)


def take(session: SqliteSession, mode: Mode, ttl: float = 30.0) -> SimpleAttempt:
    attempt = of(mode, ttl)
    assert isinstance(run(session.acquire(attempt, TIMEOUT)), Granted)
    return attempt


def is_busy(session: SqliteSession, attempt: SimpleAttempt) -> bool:
    return isinstance(run(session.acquire(attempt, TIMEOUT)), Busy)


def enqueue(session: SqliteSession, attempt: SimpleAttempt) -> None:
    """Have it wait, as far as its place in the queue."""
    assert is_busy(session, attempt)
    contender = session.contender(attempt, TIMEOUT)
    run(contender.wait(clock.now()))
    contender.abandon()


def waited_for(session: SqliteSession, attempt: SimpleAttempt) -> float:
    """Wait for a grant as the core does; returns how long it took."""
    start = clock.now()
    contender = session.contender(attempt, TIMEOUT)
    while is_busy(session, attempt):
        assert clock.now() - start < DELAY
        run(contender.wait(clock.now() + 0.5))
    contender.abandon()
    return clock.now() - start


@contextlib.contextmanager
def file(path: str) -> Any:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def test_renewal_that_froze_before_the_lease_ended_does_not_bring_a_reader_back_beside_a_writer(
    session: SqliteSession, make_session: MakeSession, path: str
) -> None:
    """The renewal has read the clock; the lease ends; a writer comes; the renewal goes on."""
    reader = take(session, READ, 30.0)
    before = int(clock.now() * 1_000_000)
    with file(path) as other:
        other.execute("UPDATE share SET expires = ?", (before - 1,))
    writer = take(session, WRITE)
    assert shares.extend(session.store(clock.now()), before, reader.claim, 30.0) is Found.STOLEN
    assert [holder.owner for holder in run(session.inspect("job", TIMEOUT)).holders] == [writer.owner]


def test_renewal_that_comes_before_the_removal_keeps_its_reader(session: SqliteSession, path: str) -> None:
    """The other order: the row was judged as lapsed, then renewed, then its removal is tried."""
    reader = take(session, READ)
    store = session.store(clock.now())
    ((expires,),) = store.read("SELECT expires FROM share", ())
    assert run(session.renew(reader, 60.0, TIMEOUT)) is Found.OURS
    assert store.write(share_statements.REMOVE_LAPSED, ("job", reader.owner, expires)) == 0
    assert is_busy(session, of(WRITE))


@pytest.mark.parametrize("mode", [READ, WRITE, permits(2, 2)], ids=["read", "write", "permits"])
def test_holder_in_a_killed_process_is_gone_at_once(
    session: SqliteSession, start_worker: Callable[[], Worker], mode: Mode
) -> None:
    worker = start_worker()
    assert worker.ask(do="acquire", name="job", ttl=600.0, mode=mode.label, permits=mode.permits)["token"]
    wanted = of(WRITE if mode.kind is WRITE.kind else ONE)
    assert is_busy(session, wanted)
    worker.kill()
    assert isinstance(run(session.acquire(wanted, TIMEOUT)), Granted)


@pytest.mark.parametrize("kind, ending", [("rwlock", "killed"), ("semaphore", "killed"), ("rwlock", "frozen")])
def test_waiter_that_is_dead_or_frozen_delays_those_behind_it_for_two_seconds_at_most(
    session: SqliteSession, start_worker: Callable[[], Worker], kind: str, ending: str
) -> None:
    take(session, READ if kind == "rwlock" else ONE)
    mode, behind = (WRITE, READ) if kind == "rwlock" else (permits(2, 2), ONE)
    worker = start_worker()
    worker.send(do="acquire", name="job", mode=mode.label, permits=mode.permits, timeout=60.0)
    start = clock.now()
    while run(session.inspect("job", TIMEOUT)).waiters == 0:
        assert clock.now() < start + TIMEOUT
    late = of(behind)
    assert is_busy(session, late), "it passed the request before it"
    worker.kill() if ending == "killed" else worker.freeze()
    assert waited_for(session, late) < DELAY
    if ending == "frozen":
        worker.kill()


def test_head_of_a_fair_queue_that_is_killed_costs_no_time_to_speak_of(
    session: SqliteSession, start_worker: Callable[[], Worker]
) -> None:
    holder = make_attempt("job")
    run(session.acquire(holder, TIMEOUT))
    worker = start_worker()
    worker.send(do="acquire", name="job", fair=True, timeout=60.0)
    start = clock.now()
    while run(session.inspect("job", TIMEOUT)).waiters == 0:
        assert clock.now() < start + TIMEOUT
    late = make_attempt("job", fair=True)
    worker.kill()
    run(session.release(holder, TIMEOUT))
    assert isinstance(run(session.acquire(late, TIMEOUT)), Granted)


def test_frozen_head_of_a_fair_queue_is_passed_after_two_seconds(
    session: SqliteSession, start_worker: Callable[[], Worker]
) -> None:
    holder = make_attempt("job")
    run(session.acquire(holder, TIMEOUT))
    worker = start_worker()
    worker.send(do="acquire", name="job", fair=True, timeout=60.0)
    start = clock.now()
    while run(session.inspect("job", TIMEOUT)).waiters == 0:
        assert clock.now() < start + TIMEOUT
    worker.freeze()
    run(session.release(holder, TIMEOUT))
    assert waited_for(session, make_attempt("job", fair=True)) < DELAY
    worker.kill()


def test_read_lock_of_a_frozen_process_ends_at_its_ttl(
    session: SqliteSession, start_worker: Callable[[], Worker]
) -> None:
    worker = start_worker()
    assert worker.ask(do="acquire", name="job", ttl=0.3, mode="read")["token"]
    worker.freeze()
    waited_for(session, of(WRITE))
    worker.thaw()
    assert worker.ask(do="renew", name="job")["found"] == "STOLEN"


def test_processes_read_and_write_without_meeting(start_worker: Callable[[], Worker], path: str) -> None:
    workers = [start_worker() for _ in range(3)]
    for worker in workers:
        worker.send(do="read and write", name="job", seconds=0.4)
    answers = [worker.answer() for worker in workers]
    assert [answer["errors"] for answer in answers] == [[]] * 3
    assert all(answer["grants"] > 5 for answer in answers)


def test_semaphore_never_gives_more_than_it_has(start_worker: Callable[[], Worker], session: SqliteSession) -> None:
    workers = [start_worker() for _ in range(3)]
    for worker in workers:
        worker.send(do="take permits", name="job", seconds=0.4)
    answers = [worker.answer() for worker in workers]
    assert [answer["errors"] for answer in answers] == [[]] * 3
    state = run(session.inspect("job", TIMEOUT))
    assert (state.size, state.free) == (3, 3)


@pytest.mark.parametrize("mode", [READ, WRITE, ONE], ids=["read", "write", "permits"])
def test_signal_at_every_instruction_of_an_acquire_leaves_nothing_after_the_withdrawal(
    session: SqliteSession, keeper: SqliteKeeper, mode: Mode
) -> None:
    run(session.ping(TIMEOUT))
    interrupted, first = True, 0
    while interrupted:
        attempt = of(mode)
        with SignalInjector(first, places=PLACES) as injector, contextlib.suppress(InjectedInterrupt):
            run(session.acquire(attempt, TIMEOUT))
        interrupted = bool(injector.interrupted_at)
        run(keeper.withdraw([attempt], TIMEOUT))
        state = run(session.inspect("job", TIMEOUT))
        assert (state.holders, state.waiters) == ((), 0), injector.interrupted_at
        first += 1
    assert first > 5


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_forked_child_does_not_own_what_its_parent_holds(session: SqliteSession) -> None:
    reader = take(session, READ)

    def work() -> None:
        assert run(session.renew(reader, 30.0, TIMEOUT)) is Found.GONE
        assert run(session.release(reader, TIMEOUT)) is Found.GONE
        assert is_busy(session, of(WRITE))

    assert in_a_child(work)
    assert run(session.release(reader, TIMEOUT)) is Found.OURS


def test_batches_of_all_kinds_are_renewed_and_withdrawn_each_in_its_table(
    session: SqliteSession, keeper: SqliteKeeper
) -> None:
    attempts = []
    for number in range(10):
        for mode in (EXCLUSIVE, READ, ONE):
            attempts.append(make_attempt(f"{mode.label} {number}", mode=mode))
            run(session.acquire(attempts[-1], TIMEOUT))
    gone = of(READ)
    assert run(keeper.renew([gone, *attempts], 60.0, TIMEOUT)) == [Found.GONE, *[Found.OURS] * 30]
    assert (run(session.inspect("read 3", TIMEOUT)).remaining or 0.0) > 40.0
    assert run(keeper.withdraw([gone, *attempts], TIMEOUT)) == [Found.GONE, *[Found.OURS] * 30]
    assert run(keeper.renew(attempts, 60.0, TIMEOUT)) == [Found.GONE] * 30


def test_plain_claim_of_an_earlier_version_is_kept_out(session: SqliteSession, path: str) -> None:
    """It knows only the tables for locks: the row of the name is owned by a mark, and its time is never over."""
    reader = take(session, READ)
    store = session.store(clock.now())
    now = int(clock.now() * 1_000_000)
    taking = ("job", "old:1", store.process, store.boot, now + 10**7, 10**7, now * 2 + 10**16, 0, b"{}")
    with file(path) as old:
        assert old.execute(statements.TAKE[False], (*taking, 0, None, 0)).rowcount == 0
        ((owner, process, boot, expires, *_),) = old.execute(statements.LOOK, ("job",)).fetchall()
        assert (owner, process, boot) == ("#rwlock", "", store.boot)
        assert expires > now + 10**15
        run(session.release(reader, TIMEOUT))
        assert old.execute(statements.TAKE[False], (*taking, 0, None, 0)).rowcount == 1
    with pytest.raises(EngineRefused, match=r"in use as a lock, not as a rwlock"):
        run(session.acquire(of(READ), TIMEOUT))


def test_lapsed_plain_lock_gives_way_to_a_reader_and_its_token_stays_the_largest(session: SqliteSession) -> None:
    held = make_attempt("job")
    run(session.acquire(held, TIMEOUT))
    with pytest.raises(EngineRefused, match="rwlock"):
        run(session.acquire(of(WRITE), TIMEOUT))
    run(session.release(held, TIMEOUT))
    granted = run(session.acquire(make_attempt("job", 0.1), TIMEOUT))
    assert isinstance(granted, Granted)
    start = clock.now()
    while run(session.inspect("job", TIMEOUT)).holders:
        assert clock.now() < start + TIMEOUT
    writer = run(session.acquire(of(WRITE), TIMEOUT))
    assert isinstance(writer, Granted)
    assert writer.token > granted.token


def test_file_of_an_earlier_version_is_extended_with_its_locks_in_place(
    session: SqliteSession, make_session: MakeSession, path: str
) -> None:
    held = make_attempt("held")
    run(session.acquire(held, TIMEOUT))
    with file(path) as old:
        for table in ("share", "semaphore", "register", "register_waiter"):
            old.execute(f"DROP TABLE {table}")
        for column in ("mode", "permits"):
            old.execute(f"ALTER TABLE queue DROP COLUMN {column}")
        assert old.execute("PRAGMA user_version").fetchall() == [(1,)]
    store = session.store(clock.now())
    store.quiesce()  # the connection is opened again, as in another process
    store.resume()
    take(session, ONE)
    assert run(session.renew(held, 30.0, TIMEOUT)) is Found.OURS


def test_free_semaphore_is_forgotten_after_a_time_and_then_the_name_has_any_kind(make_session: MakeSession) -> None:
    session = make_session(token_ttl=0.0)
    permit = take(session, ONE)
    store = session.store(clock.now())
    store.run_housekeeping(clock.now() + 30.0)
    with pytest.raises(EngineRefused, match="semaphore"):
        run(session.acquire(make_attempt("job"), TIMEOUT))
    run(session.release(permit, TIMEOUT))
    with pytest.raises(EngineRefused, match="semaphore"):
        run(session.acquire(make_attempt("job"), TIMEOUT))
    store.run_housekeeping(clock.now() + 90.0)
    assert isinstance(run(session.acquire(make_attempt("job"), TIMEOUT)), Granted)


def test_row_of_another_boot_is_waited_out_for_its_ttl(session: SqliteSession, path: str) -> None:
    take(session, READ, 30.0)
    with file(path) as other:
        other.execute("UPDATE share SET boot = 'earlier', expires = 1, ttl = 200000")
    answer = run(session.acquire(of(WRITE), TIMEOUT))
    assert isinstance(answer, Busy)
    assert answer.remaining == pytest.approx(0.2, abs=0.1)
    waited_for(session, of(WRITE))


def test_more_permits_than_there_are_is_answered_without_a_place_in_the_queue(session: SqliteSession) -> None:
    take(session, ONE)
    waiting = of(permits(2, 2))
    enqueue(session, waiting)
    run(session.resize("job", 1, TIMEOUT))
    answer = run(session.acquire(waiting, TIMEOUT))
    assert isinstance(answer, Busy)
    assert answer.impossible == "2 permits were asked for, and it has 1"
    assert (waiting.queued, run(session.inspect("job", TIMEOUT)).waiters) == (False, 0)


def test_read_inside_a_write_that_has_ended_waits_like_others(session: SqliteSession) -> None:
    writer = take(session, WRITE)
    nested = session.nested(Claim("job", "nested:1", 30.0, mode=READ), writer)
    run(session.release(writer, TIMEOUT))
    take(session, WRITE)
    assert is_busy(session, nested)


@pytest.mark.parametrize("statement", [share_statements.AROUND, share_statements.GRANT[ONE.label]])
def test_what_a_waiter_asks_does_not_grow_with_the_queue(statement: str, session: SqliteSession, path: str) -> None:
    """Each of many waiters asks several times a second: else the work would grow with the square of their number."""
    take(session, permits(2, 2))
    last = of(ONE)
    store = session.store(clock.now())
    now = int(clock.now() * 1_000_000)
    entry = (store.process, store.boot, now + 60_000_000, "", 0, b"{}", ONE.label, 1, "job")
    steps = dict[int, int]()
    for waiting in (20, 400):
        run(session.acquire(last, TIMEOUT))
        for number in range(waiting):
            store.write(statements.ENQUEUE, ("job", f"{waiting}-{number}", *entry))
        store.write(statements.LEAVE, ("job", last.owner))
        store.write(statements.ENQUEUE, ("job", last.owner, *entry))
        with contextlib.closing(sqlite3.connect(path)) as connection:
            counted = list[None]()
            connection.set_progress_handler(lambda counted=counted: counted.append(None), 1)  # type: ignore[misc]
            connection.execute(statement, shares._facts(store, now, last)).fetchall()
            connection.rollback()
        steps[waiting] = len(counted)
    assert steps[400] < 2 * steps[20]
