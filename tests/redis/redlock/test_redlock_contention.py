"""Contention on Redlock: one holder at a time, tokens in order, every contender succeeds, wake-ups replace polling."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

import holdfast
from holdfast._runtime import clock
from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import Found, Granted
from holdfast.engines.redis import scripts
from holdfast.engines.redis.connections.blocking import BlockingChannel
from holdfast.engines.redis.connections.blocking_group import BlockingGroup
from holdfast.engines.redis.dialect.replies import Answer
from holdfast.engines.redis.dialect.requests import Call
from holdfast.engines.redis.redlock import connect
from holdfast.testing.conformance.opening import Api
from tests.redis.redlock.support import LONG_TIMEOUT, Proxies, on, owners
from tests.redis.redlock.worker import Grant
from tests.redis.support import make_attempt
from tests.servers.masters import Masters
from tests.support.child import ROOT
from tests.support.waiting import eventually

ROUNDS = 20


def compete(url: str, file: Path, apis: list[str]) -> list[Grant]:
    """Returns all grants of as many processes, in the order in which they began."""
    file.write_text("0", "utf-8")
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.redis.redlock.worker", api, url, str(file), str(ROUNDS)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )
        for api in apis
    ]  # fmt: skip
    try:
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        outputs = list[str]()
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        for worker in workers:
            outputs.append(worker.communicate(timeout=60)[0])
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    grants: list[Grant] = [tuple(grant) for output in outputs for grant in json.loads(output)]
    return sorted(grants, key=lambda grant: grant[1])


def assert_exclusive(grants: list[Grant], file: Path) -> None:
    for (token, _, ended), (following, began, _) in pairwise(grants):
        assert ended <= began, "two holders at the same time"
        assert token < following, "tokens grow in the order of the grants"
    assert int(file.read_text("utf-8")) == len(grants), "no update was lost"


def test_sync_and_async_processes_exclude_each_other_and_all_succeed(five_masters: Masters, tmp_path: Path) -> None:
    grants = compete(five_masters.url, tmp_path / "number", ["sync", "async", "sync", "async"])
    assert len(grants) == 4 * ROUNDS
    assert_exclusive(grants, tmp_path / "number")
    assert owners(five_masters, "hot") == [None] * 5


def test_three_contenders_succeed_with_two_dead_servers(start_masters: Callable[..., Masters], tmp_path: Path) -> None:
    """Three servers, three contenders: the votes can be split evenly, repeatedly."""
    masters = start_masters(5)
    for server in masters.servers[3:]:
        server.kill()
    grants = compete(masters.url, tmp_path / "number", ["sync", "async", "sync"])
    assert len(grants) == 3 * ROUNDS
    assert_exclusive(grants, tmp_path / "number")


@pytest.mark.usefixtures("only_woken")
async def test_release_wakes_waiters(five_masters: Masters, api: Api) -> None:
    async with on(five_masters.url, api) as world:
        holder, waiter, actor = world.connect(request_timeout=LONG_TIMEOUT), world.connect(), world.actor()
        delays = []
        for _ in range(6):
            lease = await world.do(holder.lock("it").acquire)
            waiting = actor.do(waiter.lock("it").acquire)
            await world.until_waiting(holder, "it")
            began = time.monotonic()
            await world.do(lease.release)
            got = await waiting
            delays.append(time.monotonic() - began)
            await world.do(got.release)
        assert max(delays) < 10, "waiters are woken and do not poll"
        assert min(delays) < 0.1


@pytest.mark.usefixtures("only_woken")
@pytest.mark.parametrize("lost", [0, 4])
def test_waiters_continue_after_a_server_is_lost(start_masters: Callable[..., Masters], lost: int) -> None:
    """Also if the server with the queue is lost: the waiters queue at the next one."""
    masters = start_masters(5)
    with holdfast.connect(masters.url) as locks, holdfast.connect(masters.url) as others:
        lease = locks.lock("it").acquire()
        got = list[int]()

        def wait() -> None:
            with others.lock("it").acquire(timeout=50) as mine:
                got.append(mine.token)

        thread = threading.Thread(target=wait)
        thread.start()
        eventually(lambda: locks.inspect("it").waiters == 1)
        masters.servers[lost].kill()
        eventually(lambda: locks.inspect("it").waiters == 1)
        began = time.monotonic()
        lease.release()
        thread.join(60)
        assert time.monotonic() - began < 10, "woken"
        assert got[0] > lease.token


@pytest.mark.parametrize("queue_at, granted", [(0, False), (3, True)])
def test_non_barging_claim_yields_only_to_its_own_queue(five_masters: Masters, queue_at: int, granted: bool) -> None:
    """A waiter is queued, and the lock is free. Waiters in another queue may be unable to reach ours or come later: if
    the queues yielded to each other, no claim would proceed."""
    five_masters.servers[queue_at].ask("RPUSH", "holdfast_queue:{it}", "other")
    five_masters.servers[queue_at].ask("SET", "holdfast_queue:{it}:other", 1)
    engine = connect([f"redis://{server.address}" for server in five_masters.servers], {})
    session, attempt = engine.session(BLOCKING), make_attempt("it", non_barging=True)
    try:
        assert isinstance(run(session.acquire(attempt, LONG_TIMEOUT)), Granted) is granted
        assert owners(five_masters, "it") == [attempt.owner if granted else None] * 5
    finally:
        run(session.close())


def test_granted_claim_is_in_no_queue(five_masters: Masters) -> None:
    """The server with the queue is held by a claim that never had a majority; the other servers suffice."""
    queue_server = five_masters.servers[0]
    engine = connect([f"redis://{server.address}" for server in five_masters.servers], {})
    session, attempt = engine.session(BLOCKING), make_attempt("it")
    queue_server.ask("HSET", "it", "other:1", 1)
    try:
        contender = session.contender(attempt, LONG_TIMEOUT)
        run(contender.wait(clock.now() + 0.01))
        assert queue_server.ask("LLEN", "holdfast_queue:{it}") == 1
        assert isinstance(run(session.acquire(attempt, LONG_TIMEOUT)), Granted)
        contender.abandon()
        assert queue_server.ask("LLEN", "holdfast_queue:{it}") == 0
        assert not queue_server.client().keys("holdfast_queue:{it}:*")
    finally:
        run(session.close())


@pytest.mark.parametrize("granted", [True, False])
def test_waiter_that_changed_queues_does_not_block_the_first_queue(
    five_masters: Masters, proxies: Proxies, granted: bool
) -> None:
    """Its connection broke, and it queues at the next server. Once granted or gone it must be in neither queue.
    Otherwise non-barging claims would yield to it, although the lock is free, until it is considered dead."""
    session = connect([f"redis://{proxy.host}:{proxy.port}" for proxy in proxies], {}).session(BLOCKING)
    others = connect([f"redis://{server.address}" for server in five_masters.servers], {}).session(BLOCKING)
    holder, waiter, non_barging = make_attempt("it"), make_attempt("it"), make_attempt("it", non_barging=True)
    try:
        assert isinstance(run(others.acquire(holder, LONG_TIMEOUT)), Granted)
        contender = session.contender(waiter, LONG_TIMEOUT)
        run(contender.wait(clock.now() + 0.01))
        proxies[0].refuse()
        proxies[0].cut_all()
        run(contender.wait(clock.now() + 2.0))
        assert [server.ask("LLEN", "holdfast_queue:{it}") for server in five_masters.servers] == [1, 1, 0, 0, 0]
        proxies[0].accept()
        session._servers.health.skip_none()  # type: ignore[attr-defined]
        assert run(others.release(holder, LONG_TIMEOUT)) is Found.OURS
        if granted:
            assert isinstance(run(session.acquire(waiter, LONG_TIMEOUT)), Granted)
            contender.abandon()
            assert run(session.release(waiter, LONG_TIMEOUT)) is Found.OURS
        else:
            run(contender.leave())
        assert isinstance(run(others.acquire(non_barging, LONG_TIMEOUT)), Granted)
    finally:
        run(session.close())
        run(others.close())


def test_server_with_the_queue_is_released_last(five_masters: Masters) -> None:
    """Its release wakes the next waiter. By then the lock must be free on the other servers."""
    engine = connect([f"redis://{server.address}" for server in five_masters.servers], {})
    session, attempt, asked = engine.session(BLOCKING), make_attempt("it"), list[object]()

    class Watched(BlockingGroup):
        async def ask(self, channels: Sequence[BlockingChannel], call: Call, timeout: float) -> list[Answer]:
            if call.script is scripts.RELEASE:
                asked.extend(channels)
            return await super().ask(channels, call, timeout)

    session._servers.group = Watched()  # type: ignore[attr-defined]
    try:
        run(session.acquire(attempt, LONG_TIMEOUT))
        run(session.release(attempt, LONG_TIMEOUT))
        assert asked == session._servers.channels[::-1]  # type: ignore[attr-defined]
    finally:
        run(session.close())
