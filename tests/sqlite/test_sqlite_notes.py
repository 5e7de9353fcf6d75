"""A process that takes a name again and again releases it by a note, without a transaction."""

from __future__ import annotations

import contextlib
import gc
import os
import sqlite3
import sys
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

import holdfast
from holdfast._runtime import clock
from holdfast._runtime.blocking import run
from holdfast.engines.base import READ, Busy, Found, Granted, SimpleAttempt
from holdfast.engines.sqlite import contender as contenders
from holdfast.engines.sqlite import housekeeping, notes, operations
from holdfast.engines.sqlite.keeper import SqliteKeeper
from holdfast.engines.sqlite.session import SqliteSession
from holdfast.engines.sqlite.verdict import adopted
from tests.sqlite.conftest import TIMEOUT, MakeSession, Worker, statements_of
from tests.sqlite.worker import NEVER, give_back_directly, make_attempt, take_directly
from tests.support.forking import in_a_child
from tests.support.signal_injector import InjectedInterrupt, SignalInjector
from tests.support.waiting import eventually

StartWorker = Callable[[], Worker]
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

#: So often a name must be taken and released before a release is noted. The row of a new name says that one may wait.
_BEFORE: Final = 2


def pairs(session: SqliteSession, name: str = "job", times: int = _BEFORE) -> None:
    for _ in range(times):
        attempt = make_attempt(name)
        assert take_directly(session, attempt)
        assert give_back_directly(session, attempt)


def repeated(session: SqliteSession, name: str = "job") -> SimpleAttempt:
    """A claim that holds ``name``, and is going to be released by a note."""
    pairs(session, name)
    attempt = make_attempt(name)
    assert take_directly(session, attempt)
    return attempt


def repeat(worker: Worker, name: str = "job") -> None:
    for _ in range(_BEFORE):
        assert worker.ask(do="acquire directly", name=name)["granted"]
        assert worker.ask(do="release directly", name=name)["released"]
    assert worker.ask(do="acquire directly", name=name)["granted"]


def owner_of(session: SqliteSession, name: str = "job") -> str | None:
    """As it is in the file, without the notes."""
    row = operations.look(session.store(clock.now()), name)
    return None if row is None else row.owner


def is_noted(session: SqliteSession, attempt: SimpleAttempt) -> bool:
    store, claim = session.store(clock.now()), attempt.claim
    return notes.is_released(store.directory.fileno, store.process, claim.name, claim.owner)


def test_repeated_pair_is_one_statement(session: SqliteSession) -> None:
    attempt = repeated(session)
    with statements_of(session) as seen:
        assert give_back_directly(session, attempt)
        assert seen == []
        pairs(session, times=10)
    assert [statement.split()[0] for statement in seen] == ["UPDATE"] * 10


def test_name_released_by_a_note_is_free_for_everyone(session: SqliteSession, start_worker: StartWorker) -> None:
    attempt = repeated(session)
    assert run(session.inspect("job", TIMEOUT)).holders[0].owner == attempt.owner
    give_back_directly(session, attempt)
    assert owner_of(session) == attempt.owner
    assert run(session.inspect("job", TIMEOUT)).holders == ()
    assert run(session.break_("job", TIMEOUT)) is False

    async def held() -> list[str]:
        return [name async for name in session.names("", TIMEOUT)]

    assert run(held()) == []
    token = start_worker().ask(do="acquire", name="job")["token"]
    assert token is not None
    assert isinstance(run(session.acquire(make_attempt("job"), TIMEOUT)), Busy), "two holders"
    pair = make_attempt("job")
    assert not take_directly(session, pair), "two holders"


@pytest.mark.parametrize("how", ["fair", "non-barging", "several tokens", "a read-write lock", "another description"])
def test_name_released_by_a_note_is_free_for_every_kind_of_claim(session: SqliteSession, how: str) -> None:
    give_back_directly(session, repeated(session))
    options: dict[str, dict[str, Any]] = {
        "fair": {"fair": True},
        "non-barging": {"non_barging": True},
        "several tokens": {"tokens": 8},
        "a read-write lock": {"mode": READ},
        "another description": {"description": b'{"pid":1}'},
    }
    attempt = make_attempt("job", **options[how])
    assert isinstance(run(session.acquire(attempt, TIMEOUT)), Granted)
    assert run(session.inspect("job", TIMEOUT)).holders[0].owner == attempt.owner
    assert run(session.release(attempt, TIMEOUT)) is Found.OURS
    pairs(session)


def test_other_claim_that_holds_the_name_is_not_taken_for_released(session: SqliteSession) -> None:
    """The note of one owner says nothing about the next one, whatever its token is."""
    give_back_directly(session, repeated(session))
    other = make_attempt("job")
    assert isinstance(run(session.acquire(other, TIMEOUT)), Granted)
    assert not take_directly(session, make_attempt("job"))
    assert run(session.renew(other, 30.0, TIMEOUT)) is Found.OURS


def test_frozen_or_killed_process_keeps_nothing_that_it_has_released(
    session: SqliteSession, start_worker: StartWorker
) -> None:
    worker = start_worker()
    repeat(worker)
    assert isinstance(run(session.acquire(make_attempt("job"), TIMEOUT)), Busy)
    worker.ask(do="release directly", name="job")
    worker.freeze()
    attempt = make_attempt("job")
    assert isinstance(run(session.acquire(attempt, TIMEOUT)), Granted)
    run(session.release(attempt, TIMEOUT))
    worker.thaw()
    repeat(worker)
    worker.ask(do="release directly", name="job")
    worker.kill()
    assert isinstance(run(session.acquire(make_attempt("job"), TIMEOUT)), Granted)


def test_waiter_is_woken_by_a_release_that_would_have_been_noted(
    session: SqliteSession, start_worker: StartWorker
) -> None:
    attempt, waiter = repeated(session), start_worker()
    waiter.ask(do="do not poll")
    waiter.send(do="acquire", name="job", timeout=60.0)
    eventually(lambda: run(session.inspect("job", TIMEOUT)).waiters == 1, 5.0)
    eventually(lambda: _mark(session) == attempt.owner.encode() + b"\n", 5.0)
    assert give_back_directly(session, attempt)
    assert waiter.answer()["token"] is not None


def _mark(session: SqliteSession, name: str = "job") -> bytes:
    store = session.store(clock.now())
    with open(os.path.join(store.directory.path, notes.name_of(store.process)), "rb") as file:
        file.seek(notes._place_of(name) + notes.AWAITED)
        return file.read(notes._NOTE).rstrip(b"\0")


@pytest.mark.parametrize("when", ["before the note", "after the note"])
def test_waiter_that_comes_during_the_release_is_not_missed(
    session: SqliteSession, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either the waiter sees the note, or the release sees the waiter's mark."""
    for poll in ("_POLL", "_FIRST_POLL"):
        monkeypatch.setattr(contenders, poll, NEVER)
    holder, waiting = repeated(session), make_attempt("job")
    assert isinstance(run(session.acquire(waiting, TIMEOUT)), Busy)
    contender = session.contender(waiting, TIMEOUT)
    found: list[object] = []

    def wait() -> None:
        if not found:
            found.append(None)
            run(contender.wait(clock.now()))  # one look: it enters the queue, and leaves its mark

    def write(*arguments: object) -> int:
        if when == "before the note":
            wait()
        written = os.pwrite(*arguments)  # type: ignore[arg-type]
        if when == "after the note":
            wait()
        return written

    monkeypatch.setattr(notes, "_write", lambda *arguments: os.pwrite(*arguments) if found else write(*arguments))
    assert give_back_directly(session, holder)
    monkeypatch.undo()
    assert found
    assert contender._wakeup is not None
    woken = bool(contender._wakeup.drain())
    assert woken or run(contender.wait(clock.now())) is None
    assert isinstance(run(session.acquire(waiting, TIMEOUT)), Granted)
    contender.abandon()


def test_releases_are_noted_again_when_no_claim_waits_any_more(session: SqliteSession) -> None:
    holder = repeated(session)
    run(enter(session, make_attempt("job")).leave())
    assert give_back_directly(session, holder)
    last = repeated(session)
    give_back_directly(session, last)
    assert is_noted(session, last)


def test_waiter_that_leaves_passes_its_wakeup_on(session: SqliteSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have received the one wake-up; the holder has taken the name again meanwhile, and is to send another."""
    for poll in ("_POLL", "_FIRST_POLL"):
        monkeypatch.setattr(contenders, poll, NEVER)
    holder, leaver, stayer = repeated(session), make_attempt("job"), make_attempt("job")
    waits = [enter(session, attempt) for attempt in (leaver, stayer)]
    asleep, sleep = threading.Event(), waits[1]._sleep

    async def slept(until: float) -> list[bytes]:
        asleep.set()
        return await sleep(until)

    monkeypatch.setattr(waits[1], "_sleep", slept)
    woken = threading.Thread(target=lambda: run(waits[1].wait(clock.now() + NEVER)))
    woken.start()
    asleep.wait()
    assert give_back_directly(session, holder)  # wakes the first one
    again = make_attempt("job")
    assert take_directly(session, again)
    run(waits[0].leave())
    assert give_back_directly(session, again)
    woken.join(20.0)
    assert not woken.is_alive()
    waits[1].abandon()


def enter(session: SqliteSession, attempt: SimpleAttempt) -> contenders.SqliteContender:
    """Enter the queue, and look once."""
    assert isinstance(run(session.acquire(attempt, TIMEOUT)), Busy)
    contender = session.contender(attempt, TIMEOUT)
    run(contender.wait(clock.now()))
    return contender


def test_name_that_is_released_before_the_mark_of_a_waiter_is_worth_trying(
    session: SqliteSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, waiting = repeated(session), make_attempt("job")
    writes = count()

    def write(*arguments: object) -> int:
        if next(writes) == 0:
            assert give_back_directly(session, holder)
        return os.pwrite(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(notes, "_write", write)
    store = session.store(clock.now())
    assert operations.is_worth_trying(store, int(clock.now() * operations.SECOND), waiting) == (True, None)
    assert next(writes) > 1


def test_grant_with_a_waiter_behind_it_is_not_released_by_a_note(session: SqliteSession) -> None:
    """Its mark was for an earlier owner."""
    holder, waiting = repeated(session), make_attempt("job")
    contender = enter(session, waiting)
    assert give_back_directly(session, holder)
    assert contender._wakeup is not None
    assert contender._wakeup.drain()
    session.store(clock.now()).write("UPDATE lock SET waiting = 1", ())
    again = make_attempt("job")
    assert take_directly(session, again)
    assert give_back_directly(session, again)
    assert contender._wakeup.drain()
    run(contender.leave())


def test_break_of_a_repeated_claim_is_reported_by_its_release(session: SqliteSession) -> None:
    attempt = repeated(session)
    assert run(session.break_("job", TIMEOUT))
    assert not give_back_directly(session, attempt)
    assert run(session.release(attempt, TIMEOUT)) is Found.GONE
    pairs(session)


def test_release_in_displaced_files_is_not_reported_as_done(session: SqliteSession, path: str) -> None:
    attempt = repeated(session)
    os.rename(path + ".d", path + ".gone")
    assert session.release_directly("job", attempt.owner, TIMEOUT) is None
    assert run(session.release(attempt, TIMEOUT)) is Found.GONE


def test_closed_store_leaves_free_rows_and_no_file(make_session: MakeSession, path: str) -> None:
    observer, session = make_session(), make_session()
    names = [f"job {number}" for number in range(20)]
    for name in names:
        give_back_directly(session, repeated(session, name))
    assert any(owner_of(session, name) for name in names)
    run(session.close())
    run(observer.close())
    assert [file for file in os.listdir(path + ".d") if file != "opening"] == []
    assert [owner_of(observer_of(make_session), name) for name in names] == [None] * len(names)


def observer_of(make_session: MakeSession) -> SqliteSession:
    session = make_session()
    session.store(clock.now())
    return session


def test_note_counts_after_a_reboot(session: SqliteSession, start_worker: StartWorker) -> None:
    """A name that was free then is not waited for: only what was held is given another ttl."""
    worker = start_worker()
    for name in ("free", "free too", "held"):
        repeat(worker, name)
    for name in ("free", "free too"):
        worker.ask(do="release directly", name=name)
    worker.kill()
    session.store(clock.now()).write("UPDATE lock SET boot = 'elsewhere', expires = 1", ())
    assert isinstance(run(session.acquire(make_attempt("free too"), TIMEOUT)), Granted)
    fresh = start_worker()  # it removes what the dead have left
    assert fresh.ask(do="acquire", name="free")["token"] is not None
    assert fresh.ask(do="acquire", name="held")["token"] is None


def test_notes_of_the_dead_are_removed_with_the_proof_of_their_death(
    session: SqliteSession, start_worker: StartWorker, path: str
) -> None:
    worker = start_worker()
    repeat(worker)
    worker.ask(do="release directly", name="job")
    worker.kill()
    (left,) = Path(path + ".d").glob("*.notes")
    start_worker().ask(do="acquire", name="other")
    assert left.exists()
    os.utime(left.with_suffix(""), (1, 1))
    start_worker().ask(do="acquire", name="another")
    assert not left.exists()
    assert not left.with_suffix("").exists()


def test_child_cannot_release_the_claim_of_its_parent_by_a_note(session: SqliteSession) -> None:
    attempt = repeated(session)

    def work() -> None:
        assert session.release_directly("job", attempt.owner, TIMEOUT) is None

    assert in_a_child(work)
    assert not is_noted(session, attempt)
    assert run(session.renew(attempt, 30.0, TIMEOUT)) is Found.OURS


def at_the_same_place(name: str) -> str:
    """Another name, whose hash has the same place."""
    return next(other for other in map(str, count()) if notes._place_of(other) == notes._place_of(name))


def test_names_with_one_place_do_not_share_it(session: SqliteSession) -> None:
    other = at_the_same_place("job")
    first, second = repeated(session), repeated(session, other)
    give_back_directly(session, first)
    give_back_directly(session, second)
    assert is_noted(session, first)
    assert owner_of(session, other) is None
    pairs(session)
    pairs(session, other)


@pytest.mark.parametrize("failing", ["_write", "_read"])
def test_release_that_cannot_be_noted_is_a_statement(
    session: SqliteSession, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(28, "the disk is full")

    attempt = repeated(session)
    monkeypatch.setattr(notes, failing, fail)
    assert give_back_directly(session, attempt)
    assert owner_of(session) is None


def test_without_a_file_for_notes_releases_are_statements(
    session: SqliteSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "_OPEN", os.O_RDWR | os.O_DIRECTORY)
    give_back_directly(session, repeated(session))
    assert owner_of(session) is None


def test_long_owner_is_released_by_a_statement(session: SqliteSession) -> None:
    pairs(session, times=3)
    owner = "o" * 100
    assert isinstance(session.acquire_directly("job", owner, b"{}", 30.0, TIMEOUT), int)
    assert session.release_directly("job", owner, TIMEOUT) is Found.OURS
    assert owner_of(session) is None


def test_withdrawal_and_renewal_know_a_repeated_claim(session: SqliteSession, keeper: SqliteKeeper) -> None:
    attempt = repeated(session)
    assert run(keeper.renew([attempt], 30.0, TIMEOUT)) == [Found.OURS]
    assert run(keeper.withdraw([attempt], TIMEOUT)) == [Found.OURS]
    assert owner_of(session) is None
    assert run(session.release(attempt, TIMEOUT)) is Found.GONE


@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.usefixtures("no_warnings_of_dropped_objects")
def test_interrupted_release_leaves_the_lock_free(tmp_path: Path, awaited: bool) -> None:
    """A signal at its first place, its second, …"""
    url = f"sqlite:///{tmp_path}/locks.db"
    for number in count():
        injector = SignalInjector(number)
        with holdfast.connect(url) as client:
            lock = client.lock("a")
            for _ in range(_BEFORE):
                lock.acquire().release()
            lease = lock.acquire()
            store = client._opened.session.store(clock.now())  # type: ignore[union-attr]
            if awaited:
                row = operations.look(store, "a")
                assert row is not None
                operations.judge_lock(store, 0, "a", row, notes.AWAITED)
            try:
                with injector:
                    lease.release()
            except InjectedInterrupt:
                del lease
                gc.collect(0)
            free = lock.try_acquire(timeout=5)
            assert free is not None, f"left held by a signal at {injector.interrupted_at}"
            free.release()
        if not injector.interrupted_at:
            break
    assert number > 15, "places of a release"


def test_threads_with_a_name_each_do_not_get_one_place(session: SqliteSession) -> None:
    """The note of one would be overwritten while its row is held by it: locked for others until the end of its lease.
    The other thread comes at the first line of the method, the second, …"""
    own = session.store(clock.now()).notes
    for line in count():
        places = places_in_turn(own, f"job {line}", line)
        if len(places) == 1:
            break
        assert notes.NOWHERE in places, f"at line {line}"
    assert line > 2


def places_in_turn(own: notes.OwnNotes, name: str, line: int) -> list[int]:
    """The place of ``name``, and before it that of another one, which asks for it at a line of the method."""
    other, lines, places = at_the_same_place(name), count(), list[int]()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code is notes.OwnNotes.place.__code__ and event == "line" and next(lines) == line:
            places.append(own.place(other))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        places.append(own.place(name))
    finally:
        sys.settrace(before)
    return places


def mark_elsewhere(session: SqliteSession, how: str) -> None:
    """A waiter leaves a mark where that of another one is."""
    store = session.store(clock.now())
    if how == "of another name":
        other = at_the_same_place("job")
        assert isinstance(run(session.acquire(make_attempt(other), TIMEOUT)), Granted)
        run(enter(session, make_attempt(other)).leave())
    else:  # a waiter that was frozen after it had read the row
        notes.is_released(store.directory.fileno, store.process, "job", "an earlier owner", notes.AWAITED)


MARKS: Final = ["of another name", "for an earlier owner"]


@pytest.mark.parametrize("how", MARKS)
def test_waiter_is_woken_also_if_its_mark_was_overwritten(session: SqliteSession, how: str) -> None:
    holder, waiting = repeated(session), make_attempt("job")
    contender = enter(session, waiting)
    mark_elsewhere(session, how)
    assert give_back_directly(session, holder)
    assert contender._wakeup is not None
    assert contender._wakeup.drain()
    run(contender.leave())
    pairs(session)
    last = repeated(session)
    give_back_directly(session, last)
    assert is_noted(session, last)


@pytest.mark.parametrize("how", MARKS)
def test_break_is_reported_also_if_a_waiter_marks_after_it(session: SqliteSession, how: str) -> None:
    attempt = repeated(session)
    assert run(session.break_("job", TIMEOUT))
    mark_elsewhere(session, how)
    assert not give_back_directly(session, attempt)
    assert run(session.release(attempt, TIMEOUT)) is Found.GONE


def test_break_is_reported_also_if_a_waiter_is_about_to_mark(
    session: SqliteSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read the place before the break, and writes its mark after it."""
    attempt, writes = repeated(session), count()

    def write(*arguments: object) -> int:
        if next(writes) == 0:
            assert run(session.break_("job", TIMEOUT))
        return os.pwrite(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(notes, "_write", write)
    run(enter(session, make_attempt("job")).leave())
    assert next(writes) > 1
    assert not give_back_directly(session, attempt)
    assert run(session.release(attempt, TIMEOUT)) is Found.GONE


def test_break_that_comes_after_the_note_breaks_nothing(
    session: SqliteSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either the release or the break is reported as done, not both."""
    attempt, writes = repeated(session), count()

    def write(*arguments: object) -> int:
        if next(writes) == 0:
            assert give_back_directly(session, attempt)
        return os.pwrite(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(notes, "_write", write)
    assert run(session.break_("job", TIMEOUT)) is False
    assert next(writes) > 1


def test_notes_of_a_starting_process_are_not_taken_for_those_of_a_displaced_one(
    session: SqliteSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing of the directory may lack the liveness file, and have the notes, if both are created meanwhile."""
    store = session.store(clock.now())
    attempt = repeated(session)
    give_back_directly(session, attempt)
    directory, listed = store.directory.fileno, os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: [name for name in listed(path) if name != store.process])
    housekeeping.sweep_directory(directory, "0" * 32, lambda dead: None)
    assert is_noted(session, attempt)


def test_closed_store_keeps_notes_that_it_could_not_write_out(make_session: MakeSession, path: str) -> None:
    """Its death may not be known: a command may have the liveness file open, as flock(1) would pass it."""
    session = make_session()
    give_back_directly(session, repeated(session))
    inherited = os.dup(session.liveness_fileno())
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        run(session.close())
        other.execute("ROLLBACK")
    try:
        assert isinstance(run(make_session().acquire(make_attempt("job"), TIMEOUT)), Granted)
    finally:
        os.close(inherited)


def test_name_for_which_another_kernel_has_started_its_clock_is_written_as_a_whole(session: SqliteSession) -> None:
    """It would compare the new expiry, which is on our clock, to its own."""
    give_back_directly(session, repeated(session))
    store = session.store(clock.now())
    store.write("UPDATE lock SET boot = ?", (adopted("elsewhere"),))
    assert take_directly(session, make_attempt("job"))
    row = operations.look(store, "job")
    assert row is not None
    assert row.boot == store.boot


def test_break_of_an_earlier_claim_does_not_make_a_release_a_loss(
    session: SqliteSession, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came too late, and its mark has stayed. Another process takes the name as soon as the release is noted."""
    attempt, other = repeated(session), start_worker()
    store = session.store(clock.now())
    notes.is_released(store.directory.fileno, store.process, "job", "an earlier owner", notes.BROKEN)

    def write(*arguments: object) -> int:
        written = os.pwrite(*arguments)  # type: ignore[arg-type]
        assert other.ask(do="acquire", name="job")["token"] is not None
        return written

    monkeypatch.setattr(notes, "_write", write)
    assert give_back_directly(session, attempt)
