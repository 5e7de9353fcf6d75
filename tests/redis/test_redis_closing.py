"""Sessions closed while in use, or connections cut off in mid-message: nothing stays open, and no call hangs."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import time

import pytest

from holdfast._runtime.asyncio import AsyncioRuntime
from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import Found, Granted, RequestFailed
from holdfast.engines.redis.connections import settings
from holdfast.engines.redis.connections.blocking_keeper import BlockingKeeperChannel
from holdfast.engines.redis.connections.wire import Wire
from holdfast.engines.redis.engine import connect
from holdfast.engines.redis.scripts import ACQUIRE, RENEW
from holdfast.engines.redis.session import RedisSession
from holdfast.testing.proxy import FaultProxy
from tests.redis.support import TIMEOUT, make_attempt, on_api
from tests.servers.redis import RedisServer
from tests.servers.replication import Replication
from tests.support.clients import APIS
from tests.support.waiting import eventually

PUSH = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$3\r\njob\r\n"


def test_renewal_in_progress_is_not_aborted_by_close_in_another_thread(redis_server: RedisServer) -> None:
    """The thread that uses a connection closes it: if another thread did, the descriptor could already be reused."""
    with FaultProxy(redis_server.host, redis_server.port) as proxy:
        session, attempt = connect(proxy.url, {}).session(BLOCKING), make_attempt("job")
        assert isinstance(run(session.acquire(attempt, TIMEOUT)), Granted)
        held_back = proxy.on(script=RENEW).delay()
        answers = list[object]()
        renewing = threading.Thread(target=lambda: answers.append(run(session.renew(attempt, 30.0, TIMEOUT))))
        renewing.start()
        assert held_back.wait(TIMEOUT)
        run(session.close())
        held_back.release()
        renewing.join(TIMEOUT)
        assert answers == [Found.OURS]
        eventually(lambda: proxy.connections == 0)


def test_connection_being_opened_during_close_is_closed(pair: Replication) -> None:
    """A connection that waits for replicas is opened by its caller; the session does not know it yet."""

    async def body(proxy: FaultProxy) -> None:
        session = connect(proxy.url, {}).session(AsyncioRuntime())
        await session.ping(TIMEOUT)
        opening = proxy.on("HELLO").delay()
        task = asyncio.create_task(session.acquire(make_attempt("job", replicas=1), TIMEOUT))
        while not opening.fired:
            await asyncio.sleep(0.001)
        await session.close()
        opening.release()
        assert isinstance(await task, Granted)
        while proxy.connections:
            await asyncio.sleep(0.001)

    with FaultProxy(pair.master.host, pair.master.port) as proxy:
        asyncio.run(asyncio.wait_for(body(proxy), 3 * TIMEOUT))
    gc.collect()  # an unclosed transport warns now


def test_incomplete_push_does_not_block() -> None:
    """The link failed in the middle of a push. Meanwhile the watchdog serves other servers and locks."""
    ours, theirs = socket.socketpair()
    ours.settimeout(30.0)
    channel = BlockingKeeperChannel(settings.from_url("redis://127.0.0.1:1", {}))
    wire = Wire(ours, "redis://nowhere")
    channel.tracking._wire, wire.on_push = wire, channel.tracking._on_push
    with theirs:
        theirs.sendall(PUSH[:20])
        news = list[object]()
        listening = threading.Thread(target=lambda: news.append(channel.tracking.hints()), daemon=True)
        listening.start()
        listening.join(TIMEOUT)
        assert news == [frozenset()]
        theirs.sendall(PUSH[20:])
        assert channel.tracking.hints() == {"job"}
    wire.close()


async def test_cancelling_all_tasks_while_connecting_does_not_block_later_callers(redis_server: RedisServer) -> None:
    """Including the connecting task, before its first step. Regression: the next caller waited for it forever and
    blocked the loop."""
    session = connect(redis_server.url, {}).session(AsyncioRuntime())
    before = asyncio.all_tasks()
    asking = asyncio.create_task(session.ping(TIMEOUT))
    await asyncio.sleep(0)
    cancelled = asyncio.all_tasks() - before
    assert len(cancelled) == 2
    for task in cancelled:
        task.cancel()
    assert isinstance((await asyncio.gather(asking, return_exceptions=True))[0], asyncio.CancelledError)
    await session.ping(TIMEOUT)
    await session.close()


@APIS
def test_connect_and_request_share_one_timeout(api: str, pair: Replication) -> None:
    async def body(session: RedisSession) -> None:
        began = time.monotonic()
        with pytest.raises(RequestFailed):
            await session.acquire(make_attempt("job", replicas=1), 3.0)
        assert time.monotonic() - began < 3.0 + 1.2

    with FaultProxy(pair.master.host, pair.master.port) as proxy:
        slow = proxy.on("HELLO").delay(2.0)
        silent = proxy.on(script=ACQUIRE).black_hole()
        on_api(api, proxy.url, body)
        assert slow.fired
        assert silent.fired
