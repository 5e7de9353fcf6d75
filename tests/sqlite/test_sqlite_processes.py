"""Real processes on one file: exclusion, death, freezing, wake-up."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast._runtime import clock
from holdfast._runtime.asyncio import AsyncioRuntime
from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import ALL_NAMES, Busy, Found, Granted, RequestFailed
from holdfast.engines.sqlite import contender, notes, operations
from holdfast.engines.sqlite.keeper import SqliteKeeper
from holdfast.engines.sqlite.process_watch import ProcessWatch
from holdfast.engines.sqlite.session import SqliteSession
from holdfast.engines.sqlite.store import Store
from tests.sqlite.conftest import TIMEOUT, MakeKeeper, MakeSession, Worker
from tests.sqlite.worker import NEVER, make_attempt, obtain
from tests.support.waiting import eventually

StartWorker = Callable[[], Worker]

#: Tolerated delay on a machine with scheduler stalls.
LATE = 1.5


def until_waiting(session: SqliteSession, name: str, waiters: int) -> None:
    """Returns when this many claims wait for ``name``; each is queued and polls once more before it sleeps."""
    eventually(lambda: run(session.inspect(name, TIMEOUT)).waiters == waiters, 5.0, f"{waiters} waiters are queued")


@pytest.mark.parametrize("processes, directly", [(4, False), (8, True)])
def test_processes_exclude_one_another(
    session: SqliteSession, start_worker: StartWorker, tmp_path: Path, processes: int, directly: bool
) -> None:
    file = tmp_path / "counter"
    file.write_text("0")
    workers = [start_worker() for _ in range(processes)]
    for worker in workers:
        worker.send(do="count", name="job", file=str(file), times=100, directly=directly)
    for worker in workers:
        worker.answer()
    assert int(file.read_text()) == processes * 100
    assert run(session.inspect("job", TIMEOUT)).waiters == 0


def test_lock_of_a_dead_holder_is_free_immediately(session: SqliteSession, start_worker: StartWorker) -> None:
    worker = start_worker()
    token = worker.ask(do="acquire", name="job", ttl=30.0)["token"]
    assert isinstance(run(session.acquire(make_attempt("job"), TIMEOUT)), Busy)
    worker.kill()
    assert run(session.inspect("job", TIMEOUT)).holders == ()
    granted = run(session.acquire(make_attempt("job"), TIMEOUT))
    assert isinstance(granted, Granted)
    assert granted.token > token


def test_waiter_is_notified_of_the_death_of_the_holder(session: SqliteSession, start_worker: StartWorker) -> None:
    holder, waiter = start_worker(), start_worker()
    holder.ask(do="acquire", name="job", ttl=30.0)
    waiter.send(do="acquire", name="job", timeout=20.0)
    until_waiting(session, "job", 1)
    killed = time.monotonic()
    holder.kill()
    answer = waiter.answer()
    assert answer["token"] is not None
    assert answer["at"] - killed < 0.5 + LATE


def test_death_watch_ends_with_the_process_and_is_kept_by_waiters(
    session: SqliteSession, start_worker: StartWorker
) -> None:
    worker = start_worker()
    worker.ask(do="acquire", name="job", ttl=30.0)
    waiter = session.contender(make_attempt("job"), TIMEOUT)
    run(waiter.wait(clock.now() + 0.2))
    watch = waiter._watch
    assert watch is not None
    assert not run(BLOCKING.readable([watch.fileno()], clock.now()))
    assert not watch.has_ended()
    worker.kill()
    assert run(BLOCKING.readable([watch.fileno()], clock.now() + 5.0))
    assert watch.has_ended()
    run(waiter.wait(clock.now() + 5.0))
    assert isinstance(run(session.acquire(make_attempt("job"), TIMEOUT)), Granted)
    run(waiter.leave())


def test_abandoned_death_watches_do_not_accumulate(make_session: MakeSession) -> None:
    """The backlog of a heartbeat socket is limited; tidying empties it, and remaining waiters connect again."""
    store = make_session().store(clock.now())
    old = [store.watch_process(store.process) for _ in range(50)]
    assert not any(watch.has_ended() for watch in old)
    store.run_housekeeping(clock.now() + 60.0)
    assert all(watch.has_ended() for watch in old)
    new = store.watch_process(store.process)
    assert not new.has_ended()
    for watch in (*old, new):
        store.close_socket(watch)


def test_a_waiter_notices_death_without_a_process_watch(
    make_session: MakeSession, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(store: Store, process: str) -> ProcessWatch:
        raise OSError

    monkeypatch.setattr(Store, "watch_process", none)
    session, holder = make_session(), start_worker()
    holder.ask(do="acquire", name="job", ttl=30.0)

    def kill() -> None:
        until_waiting(make_session(), "job", 1)
        holder.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    started = clock.now()
    assert run(obtain(session, make_attempt("job"), started + 20.0)) is not None
    killer.join()
    assert clock.now() - started < 1.0 + LATE


def test_lock_of_a_frozen_holder_is_free_after_its_ttl(session: SqliteSession, start_worker: StartWorker) -> None:
    worker = start_worker()
    before = clock.now()
    worker.ask(do="acquire", name="job", ttl=0.8)
    after = clock.now()
    worker.freeze()
    attempt = make_attempt("job")
    assert run(obtain(session, attempt, clock.now() + 10.0)) is not None
    assert before + 0.8 <= clock.now() < after + 0.8 + LATE
    worker.thaw()
    assert worker.ask(do="release", name="job")["found"] == "STOLEN"
    assert run(session.renew(attempt, 30.0, TIMEOUT)) == Found.OURS


def test_release_wakes_the_waiter(session: SqliteSession, start_worker: StartWorker) -> None:
    """The datagram wakes it: polling is disabled."""
    worker = start_worker()
    worker.ask(do="do not poll")
    for _ in range(10):
        attempt = make_attempt("job")
        assert run(obtain(session, attempt, clock.now() + 5.0)) is not None
        worker.send(do="acquire", name="job", timeout=10.0)
        until_waiting(session, "job", 1)
        released = time.monotonic()
        assert run(session.release(attempt, TIMEOUT)) is Found.OURS
        answer = worker.answer()
        assert answer["token"] is not None
        assert answer["at"] - released < LATE
        worker.ask(do="release", name="job")


def test_release_wakes_an_asyncio_waiter(
    make_session: MakeSession, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = start_worker()
    for poll in ("_FIRST_POLL", "_POLL"):
        monkeypatch.setattr(contender, poll, NEVER)

    async def main() -> None:
        session = make_session(AsyncioRuntime())
        for _ in range(10):
            assert worker.ask(do="acquire", name="job")["token"]
            attempt = make_attempt("job")
            waiting = asyncio.create_task(obtain(session, attempt, clock.now() + 10.0))
            while (await session.inspect("job", TIMEOUT)).waiters != 1:
                await asyncio.sleep(0.001)
            worker.send(do="release", name="job")
            assert await waiting is not None
            assert time.monotonic() - worker.answer()["at"] < LATE
            await session.release(attempt, TIMEOUT)
        await session.close()

    asyncio.run(main())


def test_a_waiter_without_a_wakeup_socket_polls_and_keeps_its_place(
    session: SqliteSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(store: Store, kind: str) -> None:
        raise OSError

    monkeypatch.setattr(Store, "wakeup_socket", none)
    holder, waiter = make_attempt("job"), make_attempt("job", fair=True)
    run(session.acquire(holder, TIMEOUT))
    contender = session.contender(waiter, TIMEOUT)
    run(contender.wait(clock.now() + 0.01))
    run(session.release(holder, TIMEOUT))
    assert run(session.acquire(make_attempt("job", fair=True), TIMEOUT)) == Busy(None)
    run(contender.wait(clock.now() + 5.0))
    assert isinstance(run(session.acquire(waiter, TIMEOUT)), Granted)
    assert run(session.inspect("job", TIMEOUT)).waiters == 0
    contender.abandon()


def test_cancelled_asyncio_waiter_leaves_no_queue_place(
    make_session: MakeSession, keeper: SqliteKeeper, path: str
) -> None:
    async def main() -> None:
        session = make_session(AsyncioRuntime())
        holder, waiter = make_attempt("job"), make_attempt("job")
        await session.acquire(holder, TIMEOUT)
        contender = session.contender(waiter, TIMEOUT)
        waiting = asyncio.create_task(contender.wait(clock.now() + 30.0))
        while (await session.inspect("job", TIMEOUT)).waiters != 1:
            await asyncio.sleep(0.001)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        contender.abandon()
        await keeper.withdraw([waiter], TIMEOUT)
        assert (await session.inspect("job", TIMEOUT)).waiters == 0
        assert not [name for name in os.listdir(path + ".d") if ".wait-" in name]
        await session.close()

    asyncio.run(main())


def test_dead_waiter_is_skipped(session: SqliteSession, start_worker: StartWorker) -> None:
    dead, alive = start_worker(), start_worker()
    attempt = make_attempt("job")
    run(session.acquire(attempt, TIMEOUT))
    dead.send(do="acquire", name="job", timeout=20.0, fair=True)
    until_waiting(session, "job", 1)
    alive.send(do="acquire", name="job", timeout=20.0, fair=True)
    until_waiting(session, "job", 2)
    dead.kill()
    released = time.monotonic()
    run(session.release(attempt, TIMEOUT))
    answer = alive.answer()
    assert answer["token"] is not None
    assert answer["at"] - released < LATE, "long before its queue place expires"


def test_fair_waiters_are_served_in_order_of_arrival(session: SqliteSession, start_worker: StartWorker) -> None:
    attempt = make_attempt("job")
    run(session.acquire(attempt, TIMEOUT))
    workers = [start_worker() for _ in range(3)]
    for place, worker in enumerate(workers):
        worker.send(do="acquire", name="job", timeout=20.0, fair=True)
        until_waiting(session, "job", place + 1)
    run(session.release(attempt, TIMEOUT))
    tokens = []
    for worker in workers:
        tokens.append(worker.answer()["token"])
        worker.ask(do="release", name="job")
    assert tokens == sorted(tokens)
    assert len(set(tokens)) == 3


def test_break_is_reported_to_every_client_of_the_holders_process(
    make_session: MakeSession, make_keeper: MakeKeeper
) -> None:
    keepers = [make_keeper(), make_keeper()]
    attempt = make_attempt("job é")
    run(make_session().acquire(attempt, TIMEOUT))
    wakeup = BLOCKING.wakeup()
    try:
        for keeper in keepers:  # opens their sockets: what was broken before was not reported
            assert run(keeper.wait_for_hints(clock.now(), wakeup)) == ALL_NAMES
            assert not run(keeper.wait_for_hints(clock.now(), wakeup))
        breaker = make_session()
        assert run(breaker.break_("job é", TIMEOUT))
        for keeper in keepers:
            started = clock.now()
            assert set(run(keeper.wait_for_hints(started + 5.0, wakeup))) == {"job é"}
            assert clock.now() - started < 1.0 + LATE
        wakeup.set()
        assert not run(keepers[0].wait_for_hints(clock.now() + 5.0, wakeup))
    finally:
        wakeup.close()


def test_sockets_of_the_dead_are_swept_and_liveness_files_kept_until_their_rows_expire(
    make_session: MakeSession, start_worker: StartWorker, path: str
) -> None:
    worker = start_worker()
    worker.ask(do="acquire", name="job", ttl=600.0)
    worker.kill()
    session = make_session()
    run(session.ping(TIMEOUT))
    row = operations.look(session.store(clock.now()), "job")
    assert row is not None

    def left(session: SqliteSession) -> set[str]:
        mine = session.store(clock.now()).process
        return {name for name in os.listdir(path + ".d") if not name.startswith(mine)}

    assert left(session) == {"opening", row.process, notes.name_of(row.process)}, "its sockets are gone"
    assert os.stat(f"{path}.d/{row.process}").st_mtime > time.time() + 600.0
    run(session.close())
    os.utime(f"{path}.d/{row.process}", (0.0, 0.0))  # as if all of its rows had expired
    session = make_session()
    run(session.ping(TIMEOUT))
    assert left(session) == {"opening"}


def test_close_with_held_locks_frees_them(make_session: MakeSession, start_worker: StartWorker) -> None:
    worker, session = start_worker(), make_session()
    run(session.acquire(make_attempt("job", 600.0), TIMEOUT))
    assert worker.ask(do="acquire", name="job")["token"] is None
    run(session.close())
    assert worker.ask(do="acquire", name="job")["token"] is not None


def test_command_that_inherits_the_liveness_descriptor_keeps_the_lock(
    make_session: MakeSession, start_worker: StartWorker
) -> None:
    """``holdfast run``: the death of the runner must not free the lock while its command runs."""
    session, worker = make_session(), start_worker()
    run(session.acquire(make_attempt("job", 600.0), TIMEOUT))
    command = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[session.liveness_fileno()])
    run(session.close())  # like a death: the descriptor of this process is closed, and the lock is still held
    assert worker.ask(do="acquire", name="job")["token"] is None
    command.communicate()
    assert worker.ask(do="acquire", name="job")["token"] is not None


def test_closing_a_session_ends_the_wait_of_a_thread(make_session: MakeSession) -> None:
    session, other = make_session(), make_session()
    run(other.acquire(make_attempt("job"), TIMEOUT))
    outcome: list[object] = []

    def wait() -> None:
        contender = session.contender(make_attempt("job"), TIMEOUT)
        try:
            run(contender.wait(clock.now() + 30.0))
        except RequestFailed as failure:
            outcome.append(failure.may_have_happened)
        contender.abandon()

    thread = threading.Thread(target=wait)
    thread.start()
    until_waiting(other, "job", 1)
    run(session.close())
    thread.join(5.0)
    assert outcome == [False]


def test_threads_and_sessions_of_one_process_share_one_store_and_exclude_each_other(make_session: MakeSession) -> None:
    counter, errors = [0], []

    def work() -> None:
        session = make_session()
        try:
            for _ in range(50):
                attempt = make_attempt("job")
                assert run(obtain(session, attempt, clock.now() + 30.0)) is not None
                value = counter[0]
                os.sched_yield()
                counter[0] = value + 1
                assert run(session.release(attempt, TIMEOUT)) is Found.OURS
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert counter[0] == 300
