"""A release hands the name over to a waiter that was overtaken, and among fair claims to the first waiter."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast._runtime import clock
from holdfast._runtime.blocking import run
from holdfast.engines.base import Busy, Found, Granted, Handed, SimpleAttempt
from holdfast.engines.sqlite import contender as contenders
from holdfast.engines.sqlite import operations, statements
from holdfast.engines.sqlite.contender import SqliteContender
from holdfast.engines.sqlite.faults import Contended
from holdfast.engines.sqlite.keeper import SqliteKeeper
from holdfast.engines.sqlite.session import SqliteSession
from holdfast.engines.sqlite.store import Store
from holdfast.engines.sqlite.wakeup_socket import HANDED_OVER, send_wakeup
from tests.sqlite.conftest import Worker, statements_of
from tests.sqlite.worker import NEVER, make_attempt
from tests.support.waiting import eventually

TIMEOUT = 5.0


@pytest.fixture(autouse=True)
def _only_wakeups(monkeypatch: pytest.MonkeyPatch) -> None:
    for poll in ("_POLL", "_FIRST_POLL"):
        monkeypatch.setattr(contenders, poll, NEVER)


def take(session: SqliteSession, attempt: SimpleAttempt | None = None) -> tuple[SimpleAttempt, int]:
    attempt = attempt or make_attempt("job")
    answer = run(session.acquire(attempt, TIMEOUT))
    assert isinstance(answer, Granted)
    return attempt, answer.token


def queue_up(session: SqliteSession, attempt: SimpleAttempt | None = None) -> tuple[SimpleAttempt, SqliteContender]:
    """A waiter that was overtaken."""
    attempt = attempt or make_attempt("job")
    assert isinstance(run(session.acquire(attempt, TIMEOUT)), Busy)
    contender = session.contender(attempt, TIMEOUT)
    contender._overtaken = True
    run(contender.wait(clock.now()))
    return attempt, contender


def waiters(session: SqliteSession) -> int:
    return run(session.inspect("job", TIMEOUT)).waiters


def fail_once(store: Store, monkeypatch: pytest.MonkeyPatch, kind: str, which: int = 1) -> None:
    """The file is busy for one statement: the one of this number among those of this kind."""
    numbers = itertools.count(1)

    def failing(run_it: Callable[..., Any]) -> Callable[..., Any]:
        def execute(statement: str, parameters: Any, **more: Any) -> Any:
            if statement.split()[0].startswith(kind) and next(numbers) == which:
                raise Contended
            return run_it(statement, parameters, **more)

        return execute

    monkeypatch.setattr(store, "read", failing(store.read))
    monkeypatch.setattr(store, "write", failing(store.write))


def holder_of(session: SqliteSession) -> str | None:
    holders = run(session.inspect("job", TIMEOUT)).holders
    return holders[0].owner if holders else None


def test_waiter_that_lost_its_race_is_next(session: SqliteSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a process that takes the name again at once keeps a waiter out for as long as it likes."""
    holder, _ = take(session)
    attempt = make_attempt("job")
    assert isinstance(run(session.acquire(attempt, TIMEOUT)), Busy)
    contender = session.contender(attempt, TIMEOUT)
    asleep, sleep = threading.Event(), contender._sleep

    async def observed_sleep(until: float) -> list[bytes]:
        asleep.set()
        return await sleep(until)

    monkeypatch.setattr(contender, "_sleep", observed_sleep)

    def wait_again() -> threading.Thread:
        thread = threading.Thread(target=lambda: run(contender.wait(clock.now() + NEVER)))
        thread.start()
        return thread

    def row() -> tuple[object, ...]:
        return session.store(clock.now()).read("SELECT waiting FROM lock WHERE name = 'job'", ())[0]

    waiting = wait_again()
    assert asleep.wait(TIMEOUT)  # released before its look, the name would be found free, without a wake-up
    assert row() == (1,)
    run(session.release(holder, TIMEOUT))
    waiting.join()
    overtaking, before = take(session)
    assert isinstance(run(session.acquire(attempt, TIMEOUT)), Busy)
    waiting = wait_again()
    eventually(lambda: row() == (2,))
    run(session.release(overtaking, TIMEOUT))
    assert isinstance(run(session.acquire(make_attempt("job"), TIMEOUT)), Busy)
    waiting.join()  # the wake-up has come
    assert take(session, attempt)[1] > before
    assert not attempt.queued
    contender.abandon()


def test_waiter_begins_its_lease_when_the_message_comes(session: SqliteSession) -> None:
    """With two statements, and without asking for the name."""
    holder, before = take(session)
    attempt, contender = queue_up(session)
    run(session.release(holder, TIMEOUT))
    sent = clock.now()
    with statements_of(session) as seen:
        handed = run(contender.wait(clock.now() + NEVER))
    assert isinstance(handed, Handed)
    assert (handed.token > before, handed.sent >= sent, handed.lease) == (True, True, attempt.claim.ttl)
    assert [statement.split()[0] for statement in seen] == ["SELECT", "UPDATE"]
    assert (attempt.queued, waiters(session), holder_of(session)) == (False, 0, attempt.owner)
    assert run(session.inspect("job", TIMEOUT)).holders[0].token == handed.token
    assert (run(session.inspect("job", TIMEOUT)).remaining or 0.0) > 20.0
    contender.abandon()
    assert run(session.release(attempt, TIMEOUT)) is Found.OURS


def test_core_holds_what_was_handed_over_with_its_token(path: str, start_worker: Callable[[], Worker]) -> None:
    with holdfast.connect(f"sqlite://{path}") as locks:
        start_worker().send(do="hammer", name="job", seconds=1.0)
        tokens = []
        for _ in range(20):
            with locks.lock("job", timeout=30.0) as lease:
                tokens.append(lease.token)
                assert lease.held
                assert locks.inspect("job").holders[0].token == lease.token
    assert tokens == sorted(set(tokens))


def test_message_about_what_has_ended_since_grants_nothing(
    session: SqliteSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A waiter that was frozen for two seconds reads it after another claim has got the name."""
    holder, _ = take(session)
    _, contender = queue_up(session)
    run(session.release(holder, TIMEOUT))
    later = clock.now() + 2.1
    monkeypatch.setattr(type(session.runtime), "now", lambda _: later)
    taken, _ = take(session)
    assert run(contender._accept()) is None
    assert holder_of(session) == taken.owner
    monkeypatch.undo()
    run(session.release(taken, TIMEOUT))
    run(contender.leave())


def test_message_for_an_earlier_waiter_at_the_same_socket_grants_nothing(session: SqliteSession) -> None:
    take(session)
    attempt, contender = queue_up(session)
    assert contender._wakeup is not None
    assert send_wakeup(session.store(clock.now()).directory, contender._wakeup.name, HANDED_OVER)
    assert run(contender.wait(clock.now() + NEVER)) is None
    assert (attempt.queued, waiters(session)) == (True, 1)
    run(contender.leave())


def test_waiter_that_has_entered_the_queue_again_asks_and_leaves_it(session: SqliteSession) -> None:
    """It was slow to read the message, and refreshed its entry first, which the hand-over had removed."""
    holder, _ = take(session)
    attempt, contender = queue_up(session)
    run(session.release(holder, TIMEOUT))
    contender._enter_queue(session.store(clock.now()), int(clock.now() * operations.SECOND))
    assert (waiters(session), contender._entries) == (1, 2)
    assert run(contender.wait(clock.now() + NEVER)) is None
    take(session, attempt)
    assert (attempt.queued, waiters(session)) == (False, 0)
    contender.abandon()


@pytest.mark.parametrize("statement", ["SELECT", "UPDATE"])
def test_lease_begins_after_a_moment_in_which_the_file_was_busy(
    session: SqliteSession, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, before = take(session)
    attempt, contender = queue_up(session)
    run(session.release(holder, TIMEOUT))
    store = session.store(clock.now())
    fail_once(store, monkeypatch, statement)
    handed = run(contender.wait(clock.now() + NEVER))
    assert isinstance(handed, Handed)
    assert handed.token > before
    contender.abandon()
    assert run(session.release(attempt, TIMEOUT)) is Found.OURS


@pytest.mark.parametrize("times", [1, 2, 3])
def test_release_that_finds_the_file_busy_hands_over_once(
    session: SqliteSession, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each of its statements: what it did before must not be done again, or be lost."""
    holder, _ = take(session)
    attempt, contender = queue_up(session)
    store = session.store(clock.now())
    fail_once(store, monkeypatch, "", times)
    assert run(session.release(holder, TIMEOUT)) is Found.OURS
    assert holder_of(session) == attempt.owner
    assert contender._wakeup is not None
    assert contender._wakeup.drain() == [HANDED_OVER]
    run(contender.leave())


def test_withdrawn_waiter_gives_back_a_lease_that_has_begun(session: SqliteSession, keeper: SqliteKeeper) -> None:
    """Its caller was interrupted before it knew of the lease."""
    holder, _ = take(session)
    attempt, contender = queue_up(session)
    run(session.release(holder, TIMEOUT))
    assert run(contender.wait(clock.now() + NEVER)) is not None
    contender.abandon()
    run(keeper.withdraw([attempt], TIMEOUT))
    assert holder_of(session) is None


def test_fair_release_hands_over_to_the_first_waiter(session: SqliteSession) -> None:
    """A process that is woken to ask costs its own time, and that of all others that wait."""
    holder, _ = take(session, make_attempt("job", fair=True))
    queued = []
    for _ in range(3):
        attempt = make_attempt("job", fair=True)
        assert isinstance(run(session.acquire(attempt, TIMEOUT)), Busy)
        contender = session.contender(attempt, TIMEOUT)
        run(contender.wait(clock.now()))
        queued.append((attempt, contender))
    for attempt, contender in queued:
        run(session.release(holder, TIMEOUT))
        assert holder_of(session) == attempt.owner
        assert run(contender.wait(clock.now() + NEVER)) is not None
        contender.abandon()
        holder = attempt
    assert run(session.release(holder, TIMEOUT)) is Found.OURS
    assert holder_of(session) is None


def test_waiter_that_enters_does_not_undo_what_an_overtaken_one_has_asked_for(session: SqliteSession) -> None:
    holder, _ = take(session)
    attempt, contender = queue_up(session)
    behind = session.contender(make_attempt("job"), TIMEOUT)
    run(behind.wait(clock.now()))
    run(session.release(holder, TIMEOUT))
    assert holder_of(session) == attempt.owner
    run(behind.leave())
    run(contender.leave())


def test_overtaken_waiter_sleeps_after_one_write_and_one_look(session: SqliteSession) -> None:
    """The look is for the mark that it leaves for the holder (notes.py)."""
    take(session)
    _, contender = queue_up(session)
    session.store(clock.now()).write("UPDATE lock SET waiting = 0", ())
    with statements_of(session) as seen:
        run(contender.wait(clock.now()))
    assert {" ".join(statement.split()[:6]) for statement in seen} == {
        "UPDATE lock SET waiting = 2",
        "SELECT waiting, owner, process, boot, expires,",
    }
    run(contender.leave())


@pytest.mark.parametrize("asks", [False, True])
def test_waiter_that_comes_while_the_name_is_released_is_not_missed(
    session: SqliteSession, asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the release has read the queue, and before it changes the lock."""
    holder, _ = take(session)
    store = session.store(clock.now())
    attempt, contender = make_attempt("job"), None
    if asks:
        attempt, contender = queue_up(session, attempt)
        store.write("UPDATE lock SET waiting = 1", ())
    read = store.read

    def read_before(statement: str, parameters: Any) -> Any:
        nonlocal contender
        found = read(statement, parameters)
        monkeypatch.undo()
        if contender is None:
            contender = session.contender(attempt, TIMEOUT)
        run(contender.wait(clock.now()))
        return found

    store.write(statements.AWAIT, ("job",))
    monkeypatch.setattr(store, "read", read_before)
    assert run(session.release(holder, TIMEOUT)) is Found.OURS
    assert contender is not None
    assert contender._wakeup is not None
    assert contender._wakeup.drain() == [HANDED_OVER if asks else b""]
    assert holder_of(session) == (attempt.owner if asks else None)
    run(contender.leave())


def test_tokens_of_a_block_that_is_handed_over_are_all_larger(session: SqliteSession) -> None:
    holder, before = take(session)
    session.store(clock.now()).write("UPDATE lock SET token = token + 1000000000", ())  # a clock that was ahead
    attempt, contender = queue_up(session, make_attempt("job", tokens=17))
    run(session.release(holder, TIMEOUT))
    _, last = take(session, attempt)
    assert last - 16 > before + 1_000_000_000
    assert run(session.inspect("job", TIMEOUT)).holders[0].token == last - 16
    assert run(session.break_("job", TIMEOUT, last - 3))
    contender.abandon()


@pytest.mark.parametrize("ttl", [0.5, 30.0])
def test_lease_of_what_was_handed_over_begins_with_the_waiters_request(session: SqliteSession, ttl: float) -> None:
    holder, _ = take(session)
    attempt, contender = queue_up(session, make_attempt("job", ttl))
    run(session.release(holder, TIMEOUT))
    assert 0.0 < (run(session.inspect("job", TIMEOUT)).remaining or 0.0) <= 2.0
    before = clock.now()
    take(session, attempt)
    ((expires,),) = session.store(clock.now()).read("SELECT expires FROM lock WHERE name = 'job'", ())
    assert before + ttl - 0.001 <= expires / operations.SECOND <= clock.now() + ttl
    contender.abandon()


def test_waiter_that_leaves_gives_back_what_was_handed_over(session: SqliteSession) -> None:
    holder, _ = take(session)
    _, contender = queue_up(session)
    run(session.release(holder, TIMEOUT))
    assert run(contender.leave())
    assert holder_of(session) is None


def test_withdrawn_waiter_gives_back_what_was_handed_over(session: SqliteSession, keeper: SqliteKeeper) -> None:
    holder, _ = take(session)
    attempt, contender = queue_up(session)
    run(session.release(holder, TIMEOUT))
    contender.abandon()
    run(keeper.withdraw([attempt], TIMEOUT))
    assert holder_of(session) is None


def test_name_is_not_handed_over_to_a_waiter_that_has_left(session: SqliteSession) -> None:
    """It would be of no use to any caller until the short lease ends."""
    holder, _ = take(session)
    _, contender = queue_up(session)
    _, behind = queue_up(session)
    contender.abandon()  # its entry stays, without a receiver
    run(session.release(holder, TIMEOUT))
    assert holder_of(session) is None
    assert behind._wakeup is not None
    assert behind._wakeup.drain()
    run(behind.leave())


def test_name_is_not_handed_over_to_a_killed_process(
    session: SqliteSession, start_worker: Callable[[], Worker]
) -> None:
    holder, _ = take(session)
    worker = start_worker()
    worker.send(do="acquire", name="job", timeout=60.0)
    eventually(lambda: run(session.inspect("job", TIMEOUT)).waiters == 1)
    session.store(clock.now()).write(statements.AWAIT_NEXT, ("job", ""))
    worker.kill()
    run(session.release(holder, TIMEOUT))
    take(session)


@pytest.mark.parametrize("description", [b"{}", json.dumps({"pid": 7}).encode(), b""])
def test_waiter_of_an_earlier_version_is_woken_and_not_handed_over(session: SqliteSession, description: bytes) -> None:
    """It does not say how many tokens it wants: those before the one that it reads may be another holder's."""
    holder, _ = take(session)
    attempt, contender = queue_up(session)
    store = session.store(clock.now())
    store.write("UPDATE queue SET description = ? WHERE owner = ?", (description, attempt.owner))
    run(session.release(holder, TIMEOUT))
    assert holder_of(session) is None
    assert contender._wakeup is not None
    assert contender._wakeup.drain()
    run(contender.leave())


def test_holder_does_not_hand_over_to_an_entry_of_its_own(session: SqliteSession) -> None:
    """One that could not be removed from the queue after the grant."""
    holder, _ = take(session)
    store = session.store(clock.now())
    socket = store.waiter_socket()
    expires = int(clock.now() * operations.SECOND) + 10 * operations.SECOND
    about = (0, operations.described(holder.claim, always=True), "exclusive", 1)
    entry = ("job", holder.owner, store.process, store.boot, expires, socket.name, *about, "job")
    store.write(statements.ENQUEUE, entry)
    store.write(statements.AWAIT_NEXT, ("job", ""))
    assert run(session.release(holder, TIMEOUT)) is Found.OURS
    assert holder_of(session) is None
    store.close_socket(socket)


def test_what_a_frozen_waiter_was_handed_over_is_free_after_two_seconds(
    session: SqliteSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, _ = take(session)
    attempt, contender = queue_up(session)
    run(session.release(holder, TIMEOUT))
    assert holder_of(session) == attempt.owner
    later = clock.now() + 2.1
    monkeypatch.setattr(type(session.runtime), "now", lambda _: later)
    taken, _ = take(session)
    assert isinstance(run(session.acquire(attempt, TIMEOUT)), Busy), "and the frozen one does not have it"
    run(session.release(taken, TIMEOUT))
    run(contender.leave())


def test_what_a_waiter_has_found_before_it_was_woken_is_not_taken_back(
    session: SqliteSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The releasing process is slow. The waiter looks meanwhile, holds the name, and has closed its socket."""
    holder, _ = take(session)
    attempt, contender = queue_up(session)
    store = session.store(clock.now())

    def send(*arguments: Any) -> bool:
        fail_once(store, monkeypatch, "DELETE")  # it cannot leave the queue with its look, and its socket is not kept
        take(session, attempt)
        contender.abandon()
        return send_wakeup(*arguments)

    monkeypatch.setattr(operations, "send_wakeup", send)
    assert run(session.release(holder, TIMEOUT)) is Found.OURS
    assert contender._wakeup is None
    assert isinstance(run(session.acquire(make_attempt("job"), TIMEOUT)), Busy), "two holders"
    assert run(session.renew(attempt, 30.0, TIMEOUT)) is Found.OURS
