"""One connection for all tasks of a loop: the effect of the timeout of one caller, and of a busy loop, on the others.

The server answers ``BLPOP nothing t`` after ``t`` seconds, and later requests only after that.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

import holdfast.aio
from holdfast.engines.base import Granted, RequestFailed
from holdfast.engines.redis.connections import aio, handshake
from holdfast.engines.redis.connections.aio import AsyncioChannel
from holdfast.engines.redis.connections.settings import from_url
from holdfast.engines.redis.dialect.packing import pack
from holdfast.engines.redis.scripts import ACQUIRE_FREE, RELEASE
from tests.redis.support import LATE, TIMEOUT, make_attempt, on_api
from tests.servers.redis import RedisServer
from tests.support.waiting import until

SLOW: Final = 0.4
SHORT_TIMEOUT: Final = SLOW / 4

StartRedis = Callable[..., RedisServer]


@asynccontextmanager
async def channel_to(url: str) -> AsyncIterator[AsyncioChannel]:
    channel = AsyncioChannel(from_url(url, {}))
    try:
        yield channel
    finally:
        await channel.close()


def slow(channel: AsyncioChannel, timeout: float, seconds: float = SLOW) -> asyncio.Task[Any]:
    return asyncio.ensure_future(channel.command(("BLPOP", "nothing", str(seconds)), timeout))


def echo(channel: AsyncioChannel, word: str, timeout: float = TIMEOUT) -> asyncio.Task[Any]:
    return asyncio.ensure_future(channel.command(("ECHO", word), timeout))


def is_late(outcome: object) -> bool:
    return isinstance(outcome, RequestFailed) and outcome.may_have_happened and "in time" in str(outcome)


# ---- timeout of one caller


async def test_request_that_times_out_fails_alone_and_its_late_reply_is_discarded(redis_server: RedisServer) -> None:
    async with channel_to(redis_server.url) as channel:
        pipe = await channel.open(TIMEOUT)
        began = time.monotonic()
        late, others = slow(channel, SHORT_TIMEOUT), [echo(channel, str(number)) for number in range(3)]
        assert is_late((await asyncio.gather(late, return_exceptions=True))[0])
        assert time.monotonic() - began < SHORT_TIMEOUT + LATE
        others += [echo(channel, str(number)) for number in range(3, 6)]
        assert await asyncio.gather(*others) == [str(number).encode() for number in range(6)]
        assert not pipe.lost
        assert await channel.open(TIMEOUT) is pipe


async def test_timeout_shorter_than_the_latency_does_not_reset_the_connection(redis_server: RedisServer) -> None:
    """Also while no other caller waits: the next one would have to reconnect, which takes many times as long."""
    async with channel_to(redis_server.url) as channel:
        pipe = await channel.open(TIMEOUT)
        await slow(channel, TIMEOUT)
        outcome = (await asyncio.gather(slow(channel, SLOW * 0.75), return_exceptions=True))[0]
        assert outcome is None or is_late(outcome)  # None: after a scheduler stall the reply was already there
        await until(lambda: pipe.lost or not pipe.busy)
        assert not pipe.lost
        assert await echo(channel, "mine") == b"mine"


async def test_silent_connection_is_reset_despite_new_requests(start_redis: StartRedis) -> None:
    """In a black hole callers retry continuously, so the newest request is never overdue."""
    server = start_redis()
    async with channel_to(server.url) as channel:
        pipe = await channel.open(TIMEOUT)
        server.pause()
        began = time.monotonic()
        tasks: list[asyncio.Task[Any]] = []
        while not pipe.lost:
            tasks.append(echo(channel, "lost", SLOW))
            await asyncio.sleep(SLOW / 20)
            assert time.monotonic() - began < SLOW + LATE
        assert time.monotonic() - began >= SLOW
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(outcome, RequestFailed) for outcome in outcomes)
        server.resume()
        assert await echo(channel, "mine") == b"mine"


async def test_timeout_of_the_only_request_resets_the_connection(
    start_redis: StartRedis,
) -> None:
    server = start_redis()
    async with channel_to(server.url) as channel:
        pipe = await channel.open(TIMEOUT)
        server.pause()
        assert is_late((await asyncio.gather(echo(channel, "lost", SHORT_TIMEOUT), return_exceptions=True))[0])
        assert pipe.lost
        server.resume()


async def test_silent_connection_is_reset_after_all_callers_were_cancelled(start_redis: StartRedis) -> None:
    server = start_redis()
    async with channel_to(server.url) as channel:
        pipe = await channel.open(TIMEOUT)
        server.pause()
        task = echo(channel, "lost", SHORT_TIMEOUT)
        await until(lambda: pipe.busy)
        task.cancel()
        await until(lambda: pipe.lost)
        server.resume()


async def test_replies_that_are_always_late_do_not_accumulate(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is alive, but each reply arrives after its caller has timed out: the channel reconnects."""
    monkeypatch.setattr("holdfast.engines.redis.connections.aio_pipe._LONGEST_LATENCY", SHORT_TIMEOUT)
    async with channel_to(redis_server.url) as channel:
        pipe = await channel.open(TIMEOUT)
        tasks: list[asyncio.Task[Any]] = []
        while not pipe.lost and len(tasks) < 200:
            tasks.append(slow(channel, SHORT_TIMEOUT, SHORT_TIMEOUT))
            await asyncio.sleep(SHORT_TIMEOUT / 5)
        assert pipe.lost
        await asyncio.gather(*tasks, return_exceptions=True)
        assert await echo(channel, "mine") == b"mine"


async def test_unsent_request_does_not_time_out(redis_server: RedisServer) -> None:
    """Of thousands of requests, most wait in the client until the server has processed earlier ones. The timeout of a
    request begins when it is sent."""
    async with channel_to(redis_server.url) as channel:
        await channel.open(TIMEOUT)
        tasks = [slow(channel, TIMEOUT), *(echo(channel, str(number), SLOW / 2) for number in range(5000))]
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        late = [outcome for outcome in outcomes if is_late(outcome)]
        assert 0 < len(late) < 2000
        assert outcomes[-1] == b"4999"


# ---- a busy loop


class Busy:
    """Blocks the loop for ``turns`` iterations in a row."""

    def __init__(self, turns: int, seconds: float) -> None:
        self._left = turns
        self._seconds = seconds
        self._turn()

    def _turn(self) -> None:
        if self._left:
            self._left -= 1
            asyncio.get_running_loop().call_soon(self._turn)
            time.sleep(self._seconds)


def test_busy_loop_connects_in_time(redis_server: RedisServer) -> None:
    """Each iteration of the loop takes as long as the timeout; a handshake takes several iterations."""

    async def body(session: Any) -> None:
        asking = [asyncio.ensure_future(session.acquire(make_attempt(f"job-{number}"), SLOW)) for number in range(20)]
        asyncio.get_running_loop().call_soon(Busy, 5, SLOW)
        outcomes = await asyncio.gather(*asking, return_exceptions=True)
        assert not [outcome for outcome in outcomes if not isinstance(outcome, Granted)]

    on_api("async", redis_server.url, body)


async def test_waiting_callers_share_one_refused_connection_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = 0
    real = handshake.open_transport

    async def counted(settings: Any, timeout: float) -> Any:
        nonlocal attempts
        attempts += 1
        return await real(settings, timeout)

    monkeypatch.setattr(aio, "open_transport", counted)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with channel_to(f"redis://127.0.0.1:{port}/0") as channel:
        outcomes = await asyncio.gather(*(echo(channel, "lost") for _ in range(100)), return_exceptions=True)
        assert all(isinstance(outcome, RequestFailed) and not outcome.may_have_happened for outcome in outcomes)
        assert attempts == 1


def test_unknown_script_is_sent_once(redis_server: RedisServer) -> None:
    client: Any = redis_server.client()

    async def body(session: Any) -> None:
        await session.ping(TIMEOUT)
        client.script_flush()
        client.config_resetstat()
        attempts = [make_attempt(f"job-{number}") for number in range(500)]
        grants = await asyncio.gather(*(session.acquire(attempt, TIMEOUT) for attempt in attempts))
        assert all(hasattr(grant, "token") for grant in grants)
        assert client.info("commandstats")["cmdstat_eval"]["calls"] == 1

    on_api("async", redis_server.url, body)


async def test_script_that_the_server_has_forgotten_is_loaded_again_by_direct_requests(
    redis_server: RedisServer,
) -> None:
    client: Any = redis_server.client()
    async with holdfast.aio.connect(redis_server.url) as locks:
        lock = locks.lock("job")
        for _ in range(2):
            await (await lock.acquire()).release()
        client.script_flush()
        for _ in range(2):
            await (await lock.acquire()).release()
        assert client.script_exists(ACQUIRE_FREE.sha, RELEASE.sha) == [True, True]
        client.config_resetstat()
        await (await lock.acquire()).release()
        assert client.info("commandstats")["cmdstat_evalsha"]["calls"] == 2
        assert "errorstat_NOSCRIPT" not in client.info("errorstats")


async def test_unsent_request_did_not_happen(redis_server: RedisServer) -> None:
    async with channel_to(redis_server.url) as channel:
        pipe = await channel.open(TIMEOUT)
        answer = pipe.send(pack(("PING",)), TIMEOUT)  # written at the end of this iteration
        pipe.abort("the server is no master any more")
        with pytest.raises(RequestFailed) as failure:
            await answer
        assert not failure.value.may_have_happened
