"""Claims that are granted or wait, and the keys that would never expire."""

from __future__ import annotations

from typing import Any

from holdfast._runtime import clock
from holdfast.engines.base import Busy, Granted
from holdfast.engines.redis.attempt import RedisAttempt
from holdfast.engines.redis.session import RedisSession
from tests.redis.support import TIMEOUT
from tests.servers.redis import RedisServer


async def granted(session: RedisSession, wanted: RedisAttempt) -> int:
    answer = await session.acquire(wanted, TIMEOUT)
    assert isinstance(answer, Granted), f"busy: {answer}"
    return answer.token


async def queue_up(session: RedisSession, wanted: RedisAttempt) -> Any:
    """Have it wait: its entry in the queue is there, and its watch is armed."""
    assert isinstance(await session.acquire(wanted, TIMEOUT), Busy)
    contender = session.contender(wanted, TIMEOUT)
    await contender.wait(clock.now())
    return contender


def endless(server: RedisServer) -> list[bytes]:
    client = server.client()
    return [key for key in client.scan_iter() if client.pttl(key) == -1]
