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
from holdfast.engines.base import Busy, Found, Granted, RequestFailed
from holdfast.engines.sqlite import contender, ledger
from holdfast.engines.sqlite.session import SqliteSession
from holdfast.engines.sqlite.store import Store
from holdfast.engines.sqlite.vigil import Vigil
from tests.sqlite.conftest import TIMEOUT, MakeSession, Worker
from tests.sqlite.worker import NEVER, make_claim, obtain

StartWorker = Callable[[], Worker]

#: Tolerated delay on a machine with scheduler stalls.
LATE = 1.5


def until_waiting(session: SqliteSession, name: str, waiters: int) -> None:
    """Returns when this many claims wait for ``name``; each is queued and polls once more before it sleeps."""
    deadline = clock.now() + 5.0
    while run(session.inspect(name, TIMEOUT)).waiters != waiters:
        assert clock.now() < deadline, "the waiters never queued"
        run(BLOCKING.sleep_until(clock.now() + 0.002))


@pytest.mark.parametrize("processes", [4])
def test_processes_exclude_one_another(
    session: SqliteSession, start_worker: StartWorker, tmp_path: Path, processes: int
) -> None:
    file = tmp_path / "counter"
    file.write_text("0")
    workers = [start_worker() for _ in range(processes)]
    for worker in workers:
        worker.send(do="count", name="job", file=str(file), times=100)
    for worker in workers:
        worker.answer()
    assert int(file.read_text()) == processes * 100
    assert run(session.inspect("job", TIMEOUT)).waiters == 0


def test_lock_of_a_dead_holder_is_free_immediately(session: SqliteSession, start_worker: StartWorker) -> None:
    worker = start_worker()
    token = worker.ask(do="acquire", name="job", ttl=30.0)["token"]
    assert isinstance(run(session.acquire(make_claim("job"), TIMEOUT)), Busy)
    worker.kill()
    assert run(session.inspect("job", TIMEOUT)).holders == ()
    granted = run(session.acquire(make_claim("job"), TIMEOUT))
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
    waiter = session.contender(make_claim("job"), TIMEOUT)
    run(waiter.wait(clock.now() + 0.2))
    vigil = waiter._vigil
    assert vigil is not None
    assert not run(BLOCKING.readable([vigil.fileno()], clock.now()))
    assert not vigil.is_over()
    worker.kill()
    assert run(BLOCKING.readable([vigil.fileno()], clock.now() + 5.0))
    assert vigil.is_over()
    run(waiter.wait(clock.now() + 5.0))
    assert isinstance(run(session.acquire(make_claim("job"), TIMEOUT)), Granted)
    run(waiter.leave())


def test_abandoned_death_watches_do_not_accumulate(make_session: MakeSession) -> None:
    """The backlog of a heartbeat socket is limited; tidying empties it, and remaining waiters connect again."""
    store = make_session().store(clock.now())
    old = [store.vigil(store.process) for _ in range(50)]
    assert not any(vigil.is_over() for vigil in old)
    store.tidy(clock.now() + 60.0)
    assert all(vigil.is_over() for vigil in old)
    new = store.vigil(store.process)
    assert not new.is_over()
    for vigil in (*old, new):
        store.close_ear(vigil)


def test_waiter_detects_a_death_without_a_death_watch(
    make_session: MakeSession, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(store: Store, process: str) -> Vigil:
        raise OSError

    monkeypatch.setattr(Store, "vigil", none)
    session, holder = make_session(), start_worker()
    holder.ask(do="acquire", name="job", ttl=30.0)

    def kill() -> None:
        until_waiting(make_session(), "job", 1)
        holder.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    started = clock.now()
    assert run(obtain(session, make_claim("job"), started + 20.0)) is not None
    killer.join()
    assert clock.now() - started < 1.0 + LATE


def test_lock_of_a_frozen_holder_is_free_after_its_ttl(session: SqliteSession, start_worker: StartWorker) -> None:
    worker = start_worker()
    before = clock.now()
    worker.ask(do="acquire", name="job", ttl=0.8)
    after = clock.now()
    worker.freeze()
    claim = make_claim("job")
    assert run(obtain(session, claim, clock.now() + 10.0)) is not None
    assert before + 0.8 <= clock.now() < after + 0.8 + LATE
    worker.thaw()
    assert worker.ask(do="release", name="job")["found"] == "STOLEN"
    assert run(session.renew([claim], 30.0, TIMEOUT)) == [Found.OURS]


def test_release_wakes_the_waiter(session: SqliteSession, start_worker: StartWorker) -> None:
    """The datagram wakes it: polling is disabled."""
    worker = start_worker()
    worker.ask(do="do not poll")
    for _ in range(10):
        claim = make_claim("job")
        assert run(obtain(session, claim, clock.now() + 5.0)) is not None
        worker.send(do="acquire", name="job", timeout=10.0)
        until_waiting(session, "job", 1)
        released = time.monotonic()
        assert run(session.release(claim, TIMEOUT)) is Found.OURS
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
            claim = make_claim("job")
            waiting = asyncio.create_task(obtain(session, claim, clock.now() + 10.0))
            while (await session.inspect("job", TIMEOUT)).waiters != 1:
                await asyncio.sleep(0.001)
            worker.send(do="release", name="job")
            assert await waiting is not None
            assert time.monotonic() - worker.answer()["at"] < LATE
            await session.release(claim, TIMEOUT)
        await session.close()

    asyncio.run(main())


def test_waiter_without_a_wakeup_socket_polls_and_keeps_its_place(
    session: SqliteSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(store: Store, kind: str) -> None:
        raise OSError

    monkeypatch.setattr(Store, "bell", none)
    holder, waiter = make_claim("job"), make_claim("job", fair=True)
    run(session.acquire(holder, TIMEOUT))
    contender = session.contender(waiter, TIMEOUT)
    run(contender.wait(clock.now() + 0.01))
    run(session.release(holder, TIMEOUT))
    assert run(session.acquire(make_claim("job", fair=True), TIMEOUT)) == Busy(None)
    run(contender.wait(clock.now() + 5.0))
    assert isinstance(run(session.acquire(waiter, TIMEOUT)), Granted)
    assert run(session.inspect("job", TIMEOUT)).waiters == 0
    contender.abandon()


def test_cancelled_asyncio_waiter_leaves_no_queue_place(make_session: MakeSession, path: str) -> None:
    async def main() -> None:
        session = make_session(AsyncioRuntime())
        holder, waiter = make_claim("job"), make_claim("job")
        await session.acquire(holder, TIMEOUT)
        contender = session.contender(waiter, TIMEOUT)
        waiting = asyncio.create_task(contender.wait(clock.now() + 30.0))
        while (await session.inspect("job", TIMEOUT)).waiters != 1:
            await asyncio.sleep(0.001)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        contender.abandon()
        await session.withdraw([waiter], TIMEOUT)
        assert (await session.inspect("job", TIMEOUT)).waiters == 0
        assert not [name for name in os.listdir(path + ".d") if ".wait-" in name]
        await session.close()

    asyncio.run(main())


def test_dead_waiter_is_skipped(session: SqliteSession, start_worker: StartWorker) -> None:
    dead, alive = start_worker(), start_worker()
    claim = make_claim("job")
    run(session.acquire(claim, TIMEOUT))
    dead.send(do="acquire", name="job", timeout=20.0, fair=True)
    until_waiting(session, "job", 1)
    alive.send(do="acquire", name="job", timeout=20.0, fair=True)
    until_waiting(session, "job", 2)
    dead.kill()
    released = time.monotonic()
    run(session.release(claim, TIMEOUT))
    answer = alive.answer()
    assert answer["token"] is not None
    assert answer["at"] - released < LATE, "long before its queue place expires"


def test_fair_waiters_are_served_in_order_of_arrival(session: SqliteSession, start_worker: StartWorker) -> None:
    claim = make_claim("job")
    run(session.acquire(claim, TIMEOUT))
    workers = [start_worker() for _ in range(3)]
    for place, worker in enumerate(workers):
        worker.send(do="acquire", name="job", timeout=20.0, fair=True)
        until_waiting(session, "job", place + 1)
    run(session.release(claim, TIMEOUT))
    tokens = []
    for worker in workers:
        tokens.append(worker.answer()["token"])
        worker.ask(do="release", name="job")
    assert tokens == sorted(tokens)
    assert len(set(tokens)) == 3


def test_break_notifies_every_client_of_the_holder_process(
    make_session: MakeSession, start_worker: StartWorker
) -> None:
    clients = [make_session(), make_session()]
    claim = make_claim("job é")
    run(clients[0].acquire(claim, TIMEOUT))
    bell = BLOCKING.wakeup()
    try:
        for client in clients:  # opens their wake-up sockets
            assert not run(client.doze(clock.now(), bell))
        breaker = make_session()
        assert run(breaker.break_("job é", TIMEOUT))
        for client in clients:
            started = clock.now()
            assert set(run(client.doze(started + 5.0, bell))) == {"job é"}
            assert clock.now() - started < 1.0 + LATE
        bell.set()
        assert not run(clients[0].doze(clock.now() + 5.0, bell))
    finally:
        bell.close()


def test_sockets_of_the_dead_are_swept_and_liveness_files_kept_until_their_rows_expire(
    make_session: MakeSession, start_worker: StartWorker, path: str
) -> None:
    worker = start_worker()
    worker.ask(do="acquire", name="job", ttl=600.0)
    worker.kill()
    session = make_session()
    run(session.ping(TIMEOUT))
    row = ledger.look(session.store(clock.now()), "job")
    assert row is not None

    def left(session: SqliteSession) -> set[str]:
        mine = session.store(clock.now()).process
        return {name for name in os.listdir(path + ".d") if not name.startswith(mine)}

    assert left(session) == {"opening", row.process}, "its sockets are gone"
    assert os.stat(f"{path}.d/{row.process}").st_mtime > time.time() + 600.0
    run(session.close())
    os.utime(f"{path}.d/{row.process}", (0.0, 0.0))  # as if all of its rows had expired
    session = make_session()
    run(session.ping(TIMEOUT))
    assert left(session) == {"opening"}


def test_close_with_held_locks_frees_them(make_session: MakeSession, start_worker: StartWorker) -> None:
    worker, session = start_worker(), make_session()
    run(session.acquire(make_claim("job", 600.0), TIMEOUT))
    assert worker.ask(do="acquire", name="job")["token"] is None
    run(session.close())
    assert worker.ask(do="acquire", name="job")["token"] is not None


def test_command_that_inherits_the_liveness_descriptor_keeps_the_lock(
    make_session: MakeSession, start_worker: StartWorker
) -> None:
    """``holdfast run``: the death of the runner must not free the lock while its command runs."""
    session, worker = make_session(), start_worker()
    run(session.acquire(make_claim("job", 600.0), TIMEOUT))
    command = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[session.liveness_fileno()])
    run(session.close())  # like a death: the descriptor of this process is closed, and the lock is still held
    assert worker.ask(do="acquire", name="job")["token"] is None
    command.communicate()
    assert worker.ask(do="acquire", name="job")["token"] is not None


def test_closing_a_session_ends_the_wait_of_a_thread(make_session: MakeSession) -> None:
    session, other = make_session(), make_session()
    run(other.acquire(make_claim("job"), TIMEOUT))
    outcome: list[object] = []

    def wait() -> None:
        contender = session.contender(make_claim("job"), TIMEOUT)
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
                claim = make_claim("job")
                assert run(obtain(session, claim, clock.now() + 30.0)) is not None
                value = counter[0]
                os.sched_yield()
                counter[0] = value + 1
                assert run(session.release(claim, TIMEOUT)) is Found.OURS
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert counter[0] == 300
