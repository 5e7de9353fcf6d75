"""Registers in a lock file: processes that die, fork or are interrupted, and programs that touch the file."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator

import pytest

from holdfast._runtime import clock
from holdfast._runtime.blocking import run
from holdfast.engines.base import Granted
from holdfast.engines.registers import PRESENCE, Cell, Guard, Look, RegisterKey, Stale, Standing
from holdfast.engines.sqlite import register_statements
from holdfast.engines.sqlite.session import SqliteSession
from holdfast.errors import EngineRefused
from tests.sqlite.conftest import TIMEOUT, MakeSession, Worker
from tests.sqlite.worker import make_attempt
from tests.support.forking import in_a_child
from tests.support.signal_injector import SOURCE, InjectedInterrupt, SignalInjector

WAITERS = RegisterKey("job", "condition:")
STATE = RegisterKey("job", "monitor", durable=True)
#: Where signals are injected: not in what runs the coroutine, which would be left unawaited.
PLACES = (f"{SOURCE}/engines/sqlite/",)


def enter(session: SqliteSession, key: RegisterKey) -> tuple[Guard, Cell]:
    """A new hold, which has loaded the register."""
    attempt = make_attempt(key.name)
    granted = run(session.acquire(attempt, TIMEOUT))
    assert isinstance(granted, Granted)
    guard = Guard(granted.token, attempt.owner)
    cell = run(session.registers.load(key, guard, TIMEOUT))
    assert isinstance(cell, Cell)
    return guard, cell


@contextlib.contextmanager
def another_program(path: str) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def test_processes_add_to_one_register_without_a_lost_update(
    session: SqliteSession, start_worker: Callable[[], Worker]
) -> None:
    workers = [start_worker() for _ in range(3)]
    for worker in workers:
        worker.send(do="add to register", name="job", times=20)
    for worker in workers:
        worker.answer()
    assert run(session.registers.peek(STATE, TIMEOUT)).value == b"60"


def test_waiter_of_a_killed_process_is_absent_at_once(
    session: SqliteSession, start_worker: Callable[[], Worker]
) -> None:
    worker = start_worker()
    worker.ask(do="join register", name="job", waiter="w1")
    joined = clock.now()
    assert run(session.registers.peek(WAITERS, TIMEOUT)).present == {"w1"}
    worker.kill()
    absent = run(session.registers.peek(WAITERS, TIMEOUT)).present == frozenset()
    assert absent or clock.now() - joined > PRESENCE


def test_wake_up_of_a_killed_waiter_costs_nothing_and_is_not_tried_again(
    session: SqliteSession, start_worker: Callable[[], Worker], path: str
) -> None:
    worker = start_worker()
    worker.ask(do="join register", name="job", waiter="w1")
    worker.kill()
    guard, cell = enter(session, WAITERS)
    assert run(session.registers.store(WAITERS, guard, cell.version, TIMEOUT, wake=["w1"])) == 1
    with another_program(path) as other:
        assert other.execute("SELECT socket FROM register_waiter").fetchall() == [("",)]


def test_waiter_finds_a_notification_whose_sender_was_killed_before_the_wake_up(session: SqliteSession) -> None:
    guard, cell = enter(session, WAITERS)
    run(session.registers.look(WAITERS, "w1", TIMEOUT))
    stored = ("=w1:N", None, WAITERS.name, WAITERS.part, *guard, cell.version)
    assert session.store(clock.now()).write(register_statements.STORE, (0, *stored)) == 1, "committed, and no more"
    assert run(session.registers.look(WAITERS, "w1", TIMEOUT)) == Look(Standing.NOTIFIED)


def test_hold_that_froze_after_its_load_cannot_store_over_its_successor(session: SqliteSession) -> None:
    """The guard is raised by the load of the successor, before it has stored anything."""
    frozen, cell = enter(session, STATE)
    successor = Guard(frozen.token + 1, "successor")
    assert isinstance(run(session.registers.load(STATE, successor, TIMEOUT)), Cell)
    late = run(session.registers.store(STATE, frozen, cell.version, TIMEOUT, value=b"late"))
    assert late == Stale(successor.token, 0)
    assert run(session.registers.load(STATE, frozen, TIMEOUT)) == Stale(successor.token, 0)
    assert run(session.registers.store(STATE, successor, 0, TIMEOUT, value=b"new")) == 1


def test_frozen_process_does_not_delay_the_registers_of_others(
    session: SqliteSession, start_worker: Callable[[], Worker]
) -> None:
    worker = start_worker()
    worker.ask(do="join register", name="job", waiter="w1")
    worker.freeze()
    guard, cell = enter(session, WAITERS)
    assert run(session.registers.store(WAITERS, guard, cell.version, TIMEOUT, queue="=w1:N", wake=["w1"])) == 1
    assert "w1" in cell.present, "it counts as present until its time is over"
    worker.thaw()


def test_signal_at_every_instruction_of_a_store_leaves_it_done_or_undone(session: SqliteSession) -> None:
    """What was interrupted is repeated with the same arguments, as after a lost reply."""
    guard, cell = enter(session, STATE)
    version, interrupted = cell.version, True
    registers, first = session.registers, 0
    while interrupted:
        value = b"%d" % first
        with SignalInjector(first, places=PLACES) as injector, contextlib.suppress(InjectedInterrupt):
            run(registers.store(STATE, guard, version, TIMEOUT, value=value, join="w1", wake=["w1"]))
        interrupted = bool(injector.interrupted_at)
        found = run(registers.peek(STATE, TIMEOUT))
        assert found.version in (version, version + 1), injector.interrupted_at
        if found.version == version:
            assert run(registers.store(STATE, guard, version, TIMEOUT, value=value)) == version + 1
        version += 1
        found = run(registers.load(STATE, guard, TIMEOUT))  # type: ignore[assignment]
        assert (found.value, found.version) == (value, version), injector.interrupted_at
        first += 1
    assert first > 20, "the injector has found its places"


def test_listener_that_a_signal_interrupted_anywhere_can_be_armed_again(session: SqliteSession) -> None:
    interrupted, first = True, 0
    registers = session.registers
    run(registers.peek(WAITERS, TIMEOUT))
    while interrupted:
        listener = registers.listener(WAITERS, "w1")
        with SignalInjector(first, places=PLACES) as injector, contextlib.suppress(InjectedInterrupt):
            run(listener.arm())
        interrupted = bool(injector.interrupted_at)
        run(listener.arm())
        guard = Guard(2**60 + first, "owner")
        cell = run(registers.load(WAITERS, guard, TIMEOUT))
        assert isinstance(cell, Cell)
        assert run(registers.store(WAITERS, guard, cell.version, TIMEOUT, wake=["w1"])) == cell.version + 1
        until = clock.now() + TIMEOUT
        run(listener.wait(until))
        assert clock.now() < until, injector.interrupted_at
        listener.close()
        first += 1
    assert first > 10, "the injector has found its places"


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_listener_of_a_parent_is_woken_after_a_fork_and_a_child_has_its_own(session: SqliteSession) -> None:
    registers = session.registers
    guard, cell = enter(session, WAITERS)
    listener = registers.listener(WAITERS, "w1")
    run(listener.arm())

    def work() -> None:
        run(listener.wait(clock.now()))  # it listens with a socket of its own from here on
        own = registers.listener(WAITERS, "w2")
        run(own.arm())
        found = run(registers.load(WAITERS, Guard(guard.token + 1, "child"), TIMEOUT))
        assert isinstance(found, Cell)
        assert run(registers.store(WAITERS, Guard(guard.token + 1, "child"), 0, TIMEOUT, wake=["w2"])) == 1
        until = clock.now() + TIMEOUT
        run(own.wait(until))
        assert clock.now() < until

    assert in_a_child(work)
    assert run(registers.store(WAITERS, guard, cell.version, TIMEOUT, wake=["w1"])) == Stale(guard.token + 1, 1)
    run(listener.arm())
    latest = Guard(guard.token + 2, "parent")
    run(registers.load(WAITERS, latest, TIMEOUT))
    assert run(registers.store(WAITERS, latest, 1, TIMEOUT, wake=["w1"])) == 2
    until = clock.now() + TIMEOUT
    run(listener.wait(until))
    assert clock.now() < until
    listener.close()


def test_store_into_a_register_that_was_removed_is_refused(session: SqliteSession, path: str) -> None:
    guard, cell = enter(session, WAITERS)
    with another_program(path) as other:
        other.execute("DELETE FROM register")
    assert run(session.registers.store(WAITERS, guard, cell.version, TIMEOUT, value=b"x")) == Stale(-1, 0)


@pytest.mark.parametrize("change", ["value = 'text'", "value = 7", "queue = x'00'"])
def test_content_that_another_program_has_written_is_refused(session: SqliteSession, path: str, change: str) -> None:
    guard, cell = enter(session, STATE)
    run(session.registers.store(STATE, guard, cell.version, TIMEOUT, value=b"x"))
    with another_program(path) as other:
        other.execute(f"UPDATE register SET {change}")
    with pytest.raises(EngineRefused, match="'monitor' of 'job'"):
        run(session.registers.load(STATE, guard, TIMEOUT))
    with another_program(path) as other:
        assert other.execute("SELECT version FROM register").fetchall() == [(1,)], "it was not changed"


def test_queue_that_another_program_has_written_is_refused_by_a_look(session: SqliteSession, path: str) -> None:
    enter(session, WAITERS)
    with another_program(path) as other:
        other.execute("UPDATE register SET queue = 'x,w1:Q:N'")
    with pytest.raises(EngineRefused, match="has not written"):
        run(session.registers.look(WAITERS, "w1", TIMEOUT))


def test_rows_of_waiters_that_have_gone_are_removed_when_others_come(session: SqliteSession, path: str) -> None:
    for number in range(20):
        listener = session.registers.listener(WAITERS, f"w{number}")
        run(listener.arm())
        listener.close()
    with another_program(path) as other:
        other.execute("UPDATE register_waiter SET expires = expires - 61000000")
        run(session.registers.look(WAITERS, "another", TIMEOUT))
        assert other.execute("SELECT waiter FROM register_waiter").fetchall() == [("another",)]


def test_registers_are_forgotten_when_they_are_not_used_unless_they_hold_user_data(
    make_session: MakeSession, path: str
) -> None:
    session = make_session(token_ttl=0.0)
    registers = session.registers
    awaited = RegisterKey("awaited", "latch")
    for key in (WAITERS, STATE, awaited):
        run(registers.swap(key, 0, b"x", TIMEOUT))
    listener = registers.listener(awaited, None)
    run(listener.arm())
    session.store(clock.now()).run_housekeeping(clock.now() + 30.0)
    assert run(registers.peek(WAITERS, TIMEOUT)) == Cell()
    assert run(registers.peek(STATE, TIMEOUT)).value == b"x"
    assert run(registers.peek(awaited, TIMEOUT)).value == b"x"
    listener.close()


def test_hundreds_of_waiters_are_woken_by_one_store(session: SqliteSession) -> None:
    registers, names = session.registers, [f"w{number}" for number in range(200)]
    listeners = [registers.listener(WAITERS, name) for name in names]
    for listener in listeners:
        run(listener.arm())
    guard, cell = enter(session, WAITERS)
    assert run(registers.store(WAITERS, guard, cell.version, TIMEOUT, wake=names)) == 1
    until = clock.now() + TIMEOUT
    for listener in listeners:
        run(listener.wait(until))
        listener.close()
    assert clock.now() < until


def test_inspect_counts_the_present_waiters_of_each_condition(session: SqliteSession, path: str) -> None:
    guard, cell = enter(session, WAITERS)
    queue = "full=a1:W,b2:W,gone:W,c3:N;empty=d4:W;idle=e5:N"
    assert run(session.registers.store(WAITERS, guard, cell.version, TIMEOUT, queue=queue)) == 1
    for waiter in ("a1", "b2", "c3", "d4", "e5"):
        run(session.registers.look(WAITERS, waiter, TIMEOUT))
    assert run(session.inspect("job", TIMEOUT)).conditions == {"full": 2, "empty": 1}
    with another_program(path) as other:
        other.execute("UPDATE register SET queue = 'x=y'")
    assert run(session.inspect("job", TIMEOUT)).conditions == {}
