"""Connections that are slow or arrive when no longer needed: no caller waits for them, and none stays open."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast._runtime import clock
from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.connections import settings
from holdfast.engines.redis.connections.blocking import BlockingChannel
from holdfast.engines.redis.connections.blocking_group import BlockingGroup
from holdfast.engines.redis.dialect.requests import Call
from holdfast.engines.redis.redlock import connect
from holdfast.engines.redis.scripts import PING
from tests.redis.redlock.support import LASTING, LONG_TIMEOUT, REPAIR_TIME, Proxies, owners
from tests.redis.support import make_attempt
from tests.servers.masters import Masters
from tests.support.leaks import open_files
from tests.support.waiting import eventually, renewed

NAME = "silent.example"


class NameServer:
    """Resolves one name until it becomes silent; then lookups of it block."""

    def __init__(self) -> None:
        self._ask = socket.getaddrinfo
        self._answers = threading.Event()
        self._answers.set()
        self.waiting: list[None] = []

    def getaddrinfo(self, host: Any, *args: Any, **keywords: Any) -> Any:
        if host == NAME:
            self.waiting.append(None)
            self._answers.wait(60)
            self.waiting.pop()
        return self._ask("127.0.0.1" if host == NAME else host, *args, **keywords)

    def fall_silent(self) -> None:
        self._answers.clear()

    def answer(self) -> None:
        self._answers.set()


@pytest.fixture
def name_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    server = NameServer()
    monkeypatch.setattr(socket, "getaddrinfo", server.getaddrinfo)
    yield server
    server.answer()
    eventually(lambda: not server.waiting)


def test_blocked_name_lookup_delays_neither_callers_nor_the_watchdog(
    five_masters: Masters, name_server: NameServer
) -> None:
    """One connection is lost and the name servers are silent; such a lookup has no known time limit."""
    url = five_masters.url.replace(five_masters.servers[2].address, f"{NAME}:{five_masters.servers[2].port}")
    with holdfast.connect(url, ttl=LASTING) as locks:
        lease = locks.lock("held").acquire()
        eventually(lambda: owners(five_masters, "held") == [lease.owner] * 5, within=REPAIR_TIME)
        name_server.fall_silent()
        five_masters.servers[2].ask("CLIENT", "KILL", "TYPE", "normal")
        began = time.monotonic()
        locks.lock("other").acquire().release()
        assert time.monotonic() - began < 5.0, "independent of the silent name servers"
        eventually(renewed(lease), within=REPAIR_TIME)  # by the other servers
        assert name_server.waiting
        lease.release()
        name_server.answer()


def test_attempts_to_connect_do_not_accumulate(five_masters: Masters, name_server: NameServer) -> None:
    group = BlockingGroup()
    channel = BlockingChannel(settings.from_url(f"redis://{NAME}:{five_masters.servers[0].port}", {}))
    name_server.fall_silent()
    for number in range(1, 25):
        (answer,) = run(group.ask([channel], Call(PING, (), ()), 0.001))
        assert isinstance(answer, RequestFailed)
        assert not answer.may_have_happened
        eventually(lambda number=number: len(name_server.waiting) == min(number, 16))  # type: ignore[misc]
    name_server.answer()
    eventually(lambda: not name_server.waiting)
    eventually(lambda: not isinstance(run(group.ask([channel], Call(PING, (), ()), 0.5))[0], RequestFailed))
    run(channel.close())


def test_dead_idle_connections_are_replaced_concurrently(five_masters: Masters, proxies: Proxies) -> None:
    """The connections were lost while idle, and the hosts no longer answer: all share one timeout."""
    engine = connect([f"redis://{proxy.host}:{proxy.port}" for proxy in proxies], {})
    session = engine.session(BLOCKING)
    try:
        run(session.ping(LONG_TIMEOUT))
        for channel in session._servers.channels:  # type: ignore[attr-defined]
            for wire in channel._idle:
                wire.rested -= 60.0
        for proxy in proxies[:3]:
            proxy.cut_all()
            proxy.black_hole_all()
        began = time.monotonic()
        with pytest.raises(RequestFailed):
            run(session.ping(1.0))
        assert 1.0 <= time.monotonic() - began < 2.9
    finally:
        run(session.close())


def test_connection_that_arrives_after_close_is_closed(five_masters: Masters, proxies: Proxies) -> None:
    """The keeper is closed while a renewal is connecting. ``close`` does not know these connections yet."""
    engine = connect([f"redis://{proxy.host}:{proxy.port}" for proxy in proxies], {})
    keeper, attempt = engine.keeper(BLOCKING), make_attempt("it")
    wakeup = BLOCKING.wakeup()
    run(keeper.wait_for_hints(clock.now(), wakeup))  # the tracking connection is opened only after this
    wakeup.close()
    late = [proxy.on("CLIENT", containing="TRACKING").delay(side="request") for proxy in proxies]
    renewing = threading.Thread(target=lambda: run(keeper.renew([attempt], 5.0, 10.0)))
    renewing.start()
    eventually(lambda: all(rule.fired for rule in late))
    run(keeper.close())
    for rule in late:
        rule.release()
    renewing.join(10)
    eventually(lambda: [proxy.connections for proxy in proxies] == [0] * 5)


async def test_connect_cancelled_at_any_step_leaves_nothing_open(five_masters: Masters) -> None:
    async def connected(url: str, steps: int) -> bool:
        async with holdfast.aio.connect(url) as locks:
            asking = asyncio.ensure_future(locks.ping())
            for _ in range(steps):
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait((asking,))
            return not asking.cancelled()

    await connected(five_masters.url, 0)
    before = open_files("socket:")
    steps = given_up = 0
    while not await connected(five_masters.url, steps):
        steps, given_up = steps + 2, given_up + 1
        assert open_files("socket:") == before
    assert given_up > 5
    gc.collect()  # unclosed resources warn now


async def test_close_cancelled_at_any_step_leaves_nothing_open(five_masters: Masters) -> None:
    assert owners(five_masters, "held") == [None] * 5  # connects the helper
    before = open_files("socket:")
    for steps in (1, 2, 3, 5, 8, 12, 18):
        locks = holdfast.aio.connect(five_masters.url, ttl=60, request_timeout=LONG_TIMEOUT)
        lease = await locks.lock("held").acquire(timeout=10)
        closing = asyncio.ensure_future(locks.close())
        for _ in range(steps):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait((closing,))
        assert lease.lost_reason == "closed"
        # The watchdog releases and closes its own connections, on a thread that may not have started yet.
        await asyncio.to_thread(eventually, lambda: owners(five_masters, "held") == [None] * 5, REPAIR_TIME)
        await asyncio.to_thread(eventually, lambda: open_files("socket:") == before)
