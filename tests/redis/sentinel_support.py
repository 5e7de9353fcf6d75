"""Helpers for tests of the Sentinel engine: an engine on given sentinels, and common checks."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest

from holdfast.engines.base import Found, Granted, RequestFailed
from holdfast.engines.redis.sentinel import SentinelEngine, connect
from holdfast.engines.redis.session import RedisSession
from holdfast.engines.redis.url import SentinelTarget
from holdfast.errors import EngineRefused
from tests.redis.support import TIMEOUT, make_attempt, on
from tests.servers.redis import RedisServer
from tests.servers.sentinel import MASTER_NAME, Sentinel

#: A request timeout: even one share of it outlasts a scheduler stall.
REQUEST: Final = 5.0

StartRedis = Callable[..., RedisServer]
StartSentinel = Callable[..., Sentinel]
Body = Callable[[RedisSession], Coroutine[Any, Any, None]]


def engine_for(*sentinels: Sentinel, master: str = MASTER_NAME, user_info: str = "", **options: Any) -> SentinelEngine:
    places = tuple((sentinel.host, sentinel.port) for sentinel in sentinels)
    return connect(SentinelTarget(master, places, f"redis://{user_info}{sentinels[0].address}/0"), options)


async def hold_and_release(session: RedisSession) -> None:
    attempt = make_attempt("job")
    assert isinstance(await session.acquire(attempt, TIMEOUT), Granted)
    assert await session.renew(attempt, 40.0, TIMEOUT) == Found.OURS
    assert await session.release(attempt, TIMEOUT) is Found.OURS


def failure_of(engine: SentinelEngine, api: str, timeout: float = REQUEST) -> Exception:
    """The exception that ``ping`` raises, within ``timeout``."""
    caught: list[Exception] = []

    async def body(session: RedisSession) -> None:
        began = time.monotonic()
        with pytest.raises((RequestFailed, EngineRefused)) as error:
            await session.ping(timeout)
        assert time.monotonic() - began < timeout + 1.2
        caught.append(error.value)

    on(engine, api, body)
    return caught[0]


def first_to_be_asked(engine: SentinelEngine) -> str:
    """The address of the sentinel that the next connection asks first."""
    server: Any = engine._server
    address: str = server._sentinels[0][0].address
    return address.removeprefix("sentinel ")


def unused_port() -> int:
    """A port that refuses connections."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port
