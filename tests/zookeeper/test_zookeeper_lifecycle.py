"""A client's threads, sockets and sessions: few, all ended with the client, none shared with a forked child."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import re
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import holdfast
from holdfast._runtime.blocking import BLOCKING, run
from holdfast._runtime.clock import now
from holdfast.engines.base import Claim
from holdfast.engines.zookeeper.handler import Handler
from holdfast.engines.zookeeper.queue import id_of
from holdfast.engines.zookeeper.reply import Reply
from tests.servers.zookeeper import ZooKeeperServer
from tests.servers.zookeeper_proxy import ZooKeeperProxy
from tests.support.calls import Call
from tests.support.child import ROOT
from tests.support.leaks import new_threads, open_files
from tests.support.waiting import eventually
from tests.zookeeper.conftest import Connect
from tests.zookeeper.support import LONG_TIMEOUT, SOON, connection_of, hub_of, nodes

Start = Callable[..., ZooKeeperServer]


def open_here() -> set[object]:
    """Threads, sockets and pipes by identity rather than by count, since those of an earlier test may still be about to
    end. Other descriptors are not included: a plain kazoo client opens and closes some all the time."""
    gc.collect()
    return {*new_threads(set()), *open_files("socket:", "pipe:")}


def test_session_uses_one_thread_and_calls_start_none(connect: Connect) -> None:
    locks = connect()
    before = set(threading.enumerate())
    leases = [locks.lock(str(number)).acquire() for number in range(20)]
    begun = [thread.name for thread in threading.enumerate() if thread not in before]
    assert sorted(begun) == ["holdfast-watchdog", "holdfast-zookeeper"]
    for lease in leases:
        lease.release()


@pytest.mark.parametrize("use", ["ping", "acquire", "nothing"])
def test_closing_leaves_no_thread_no_socket_and_no_session(
    zookeeper_server: ZooKeeperServer, plain: KazooClient, use: str
) -> None:
    before, sessions = open_here(), sessions_of(zookeeper_server)
    locks = holdfast.connect(zookeeper_server.url)
    if use == "ping":
        locks.ping()
    elif use == "acquire":
        locks.lock("a").acquire().release()
    locks.close()
    eventually(lambda: open_here() <= before)
    eventually(lambda: sessions_of(zookeeper_server) <= sessions)
    del locks  # kept until here: close() alone must suffice, without garbage collection


def sessions_of(server: ZooKeeperServer) -> set[str]:
    return set(re.findall(r"\t(0x\w+)", server.ask("dump")))


def test_ctrl_c_while_the_first_session_starts_loses_only_that_session(
    zookeeper_server: ZooKeeperServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session's thread runs, but is not recorded yet. Starting it again would wait for its end for ever."""
    before = open_here()
    spawn = Handler.spawn

    def interrupted(handler: Handler, *arguments: Any, **keywords: Any) -> Any:
        thread = spawn(handler, *arguments, **keywords)
        eventually(thread.is_alive)
        raise KeyboardInterrupt

    locks = connect()
    with monkeypatch.context() as patched:
        patched.setattr(Handler, "spawn", interrupted)
        with pytest.raises(KeyboardInterrupt):
            locks.lock("a").acquire()
    Call(locks.lock("a").acquire).result().release()
    locks.close()
    eventually(lambda: open_here() <= before)


@pytest.mark.parametrize("fault", ["frozen", "gone", "never there"])
def test_closing_without_servers_takes_at_most_a_second(start_zookeeper: Start, fault: str) -> None:
    before = open_here()
    server = start_zookeeper()
    locks = holdfast.connect(server.url, unavailable_after=0.1)
    if fault == "never there":
        server.kill()
        with pytest.raises(holdfast.EngineUnavailable):
            locks.ping()
    else:
        leases = [locks.lock(name).acquire() for name in "abc"]
        server.pause() if fault == "frozen" else server.kill()
        assert all(lease.held for lease in leases)
    began = time.monotonic()
    locks.close()
    assert time.monotonic() - began < 1.0 + 1.5
    server.close()
    eventually(lambda: open_here() <= before)


def test_unreferenced_client_is_closed(zookeeper_server: ZooKeeperServer) -> None:
    before = open_here()
    holdfast.connect(zookeeper_server.url).ping()
    eventually(lambda: open_here() <= before)
    with holdfast.connect(zookeeper_server.url).lock("a") as lease:
        assert lease.held
    del lease
    eventually(lambda: open_here() <= before)


async def test_unreferenced_async_client_is_closed(zookeeper_server: ZooKeeperServer) -> None:
    before = open_here()
    async with holdfast.aio.connect(zookeeper_server.url).lock("a") as lease:
        assert lease.held
    del lease
    async with asyncio.timeout(SOON):
        while not open_here() <= before:
            await asyncio.sleep(0.01)


def wait_in_a_loop_that_is_closed(locks: holdfast.aio.AsyncClient, plain: KazooClient) -> None:
    """Wait for the lock ``a``, which another client holds."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)  # expected: "Task was destroyed but it is pending"
    task = loop.create_task(locks.lock("a").acquire())
    while len(nodes(plain, "a")) < 2:
        loop.run_until_complete(asyncio.sleep(0.01))
    loop.run_until_complete(asyncio.sleep(0.1))
    del task
    loop.close()


def test_waiter_whose_loop_was_closed_leaves_the_queue(
    zookeeper_server: ZooKeeperServer, connect: Connect, plain: KazooClient
) -> None:
    held = connect().lock("a").acquire()
    locks = holdfast.aio.connect(zookeeper_server.url)

    Call(lambda: wait_in_a_loop_that_is_closed(locks, plain)).result()
    eventually(lambda: gc.collect() >= 0 and len(nodes(plain, "a")) == 1)
    assert held.held
    held.release()
    asyncio.run(locks.close())


def test_waiter_may_be_collected_by_a_thread_that_holds_the_clients_mutex(
    zookeeper_server: ZooKeeperServer, connect: Connect, plain: KazooClient
) -> None:
    """The garbage collector runs at any allocation, for example in the watchdog while it iterates over the leases."""
    held = connect().lock("a").acquire()
    locks = holdfast.aio.connect(zookeeper_server.url)

    def collect() -> None:
        with locks._opened.lock:  # type: ignore[union-attr]
            gc.collect()

    gc.disable()
    try:
        Call(lambda: wait_in_a_loop_that_is_closed(locks, plain)).result()
        Call(collect).result()
    finally:
        gc.enable()
    eventually(lambda: len(nodes(plain, "a")) == 1)
    assert held.held
    held.release()
    asyncio.run(locks.close())


def test_finaliser_that_gives_up_a_place_does_not_deadlock_on_our_mutexes(
    zookeeper_server: ZooKeeperServer, connect: Connect, plain: KazooClient
) -> None:
    """The garbage collector runs at any allocation, even in a thread that holds these mutexes."""
    held = connect().lock("a").acquire()
    locks = connect()
    locks.ping()
    hub, watches = hub_of(locks), connection_of(locks).watches
    session = locks._opened.session  # type: ignore[union-attr]
    attempt = session.attempt(Claim("a", f"{uuid.uuid4()}:1", 30.0))
    waiter = session.contender(attempt, LONG_TIMEOUT)
    run(session.acquire(attempt, LONG_TIMEOUT))
    Call(lambda: run(waiter.wait(now() + 0.05))).result()

    def finalise() -> None:
        with hub._mutex, watches._mutex, hub.leftovers._mutex:
            waiter.abandon()
            hub.expect_no_more(Reply(BLOCKING.event()).receiver)
            hub.forget(attempt)
            hub.leftovers.add(connection_of(locks), "/holdfast/a", id_of(attempt))

    Call(finalise).result()
    eventually(lambda: len(nodes(plain, "a")) == 1)
    assert held.held
    held.release()


def test_interpreter_exit_with_an_open_client_is_quick_and_releases_its_locks(
    zookeeper_server: ZooKeeperServer, plain: KazooClient
) -> None:
    program = "import holdfast, sys; locks = holdfast.connect(sys.argv[1]); lease = locks.lock('a').acquire(); print(1)"
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", program, zookeeper_server.url],
        capture_output=True,
        text=True,
        timeout=20,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
    assert time.monotonic() - began < 10
    eventually(lambda: nodes(plain, "a") == [])


def test_a_forked_child_does_not_touch_its_parents_session(zookeeper_server: ZooKeeperServer) -> None:
    """Runs in a process of its own: forking the test run would copy far more."""
    program = Path(__file__).with_name("forking.py")
    done = subprocess.run(
        [sys.executable, str(program), zookeeper_server.url],
        capture_output=True,
        text=True,
        timeout=30,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [*sys.path, str(ROOT)]))},
    )
    assert done.stderr == ""
    assert done.stdout.split() == ["forked", "False", "True", "True", "0"]


def test_lost_wakeup_of_a_request_delays_no_later_request(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal may interrupt a caller before its wake-up. kazoo sends one request for each wake-up: with one missing,
    all later requests would be delayed."""
    locks = connect(ttl=60, request_timeout=60)  # a ping every 10 s
    locks.ping()
    connection = connection_of(locks, ttl=60)
    wakeups = [0]
    wake = connection._handler.wake

    def lossy() -> None:
        wakeups[0] += 1
        if wakeups[0] != 1:
            wake()

    monkeypatch.setattr(connection._handler, "wake", lossy)
    began = time.monotonic()
    for _ in range(3):
        locks.lock("a").acquire(timeout=SOON).release()
    assert wakeups[0] > 6
    assert time.monotonic() - began < 3.0, "each request waits for the next one"


def test_many_waits_that_time_out_leave_one_watch(
    connect: Connect, zookeeper_server: ZooKeeperServer, plain: KazooClient
) -> None:
    locks, others = connect(), connect()
    held = others.lock("a").acquire()
    lock = locks.lock("a")
    for timeout in (*[0.001] * 200, *[0.02] * 20):
        try:
            assert lock.try_acquire(timeout=timeout) is None
        except holdfast.EngineUnavailable:
            pass  # on a busy machine the server may not answer in such a short time
    inner = connection_of(locks)._client
    eventually(lambda: len(nodes(plain, "a")) == 1)
    assert sum(map(len, inner._data_watchers.values())) <= 1
    assert sum(map(len, connection_of(locks).watches._callbacks.values())) == 0
    assert len(hub_of(locks)) == 0
    held.release()
    eventually(lambda: not inner._data_watchers)


def test_log_has_no_warnings_and_no_secrets(
    connect: Connect, proxy: ZooKeeperProxy, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(1):
        locks = connect(f"zookeeper://app:s3cr3t@{proxy.address}/holdfast?tick=0.1&acl=open")
        locks.ping()
        proxy.refuse()
        proxy.cut_all()
        eventually(lambda: connection_of(locks).last_error is not None)
        proxy.accept()
        locks.lock("a").acquire(timeout=SOON).release()
        password = connection_of(locks)._client._session_passwd.hex()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert {record.name for record in caplog.records} <= {"holdfast.zookeeper"}
    assert any("lost" in record.getMessage() for record in caplog.records if record.levelno == logging.INFO)
    assert "s3cr3t" not in caplog.text
    assert password not in caplog.text
    assert "s3cr3t" not in repr(locks)


def test_client_used_on_one_event_loop_after_another_leaves_no_resources(
    zookeeper_server: ZooKeeperServer, plain: KazooClient
) -> None:
    """Each event loop opens the client anew with the same sessions; closing an earlier one keeps later leases."""
    before = open_here()
    locks = holdfast.aio.connect(zookeeper_server.url)
    leases: list[holdfast.aio.AsyncLease] = []  # keeps the client as it was opened on each loop alive

    async def use() -> None:
        leases.append(await locks.lock("a").acquire(timeout=SOON))
        assert leases[-1].held
        assert len(nodes(plain, "a")) == 1

    for _ in range(3):
        asyncio.run(use())
    assert [lease.lost_reason for lease in leases] == ["closed", "closed", None]

    async def close() -> None:
        async with locks.lock("b") as lease:
            assert lease.held
        await locks.close()

    asyncio.run(close())
    eventually(lambda: open_here() <= before)
    assert nodes(plain, "a") == []
