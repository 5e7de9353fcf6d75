"""Another thread finds a new master during a connect: connections are attributed to the right server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from holdfast._runtime import clock
from holdfast.engines.base import Busy, Granted
from holdfast.engines.redis.connections import handshake, settings
from holdfast.engines.redis.engine import RedisEngine
from holdfast.engines.redis.session import RedisSession
from tests.redis.sentinel_support import StartRedis
from tests.redis.support import TIMEOUT, Other, make_attempt, on
from tests.servers.redis import RedisServer
from tests.support.clients import APIS


class Found:
    """See :class:`holdfast.engines.redis.connections.settings.Sought`: at ``server``, until it is set to another."""

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.meanwhile: Callable[[], None] = lambda: None  #: runs as another thread during a connect

    @property
    def address(self) -> str:
        return self._settings.address

    @property
    def _settings(self) -> settings.Settings:
        return settings.from_url(self.server.url, {})

    def open_socket(self, timeout: float) -> tuple[socket.socket, str]:
        opened = handshake.open_socket(self._settings, timeout)
        self.meanwhile()
        return opened

    async def open_transport(self, timeout: float) -> tuple[asyncio.StreamWriter, str]:
        opened = await handshake.open_transport(self._settings, timeout)
        self.meanwhile()
        return opened


@APIS
def test_new_master_found_during_a_connect_to_the_old_one_is_used(api: str, start_redis: StartRedis) -> None:
    """A connection to the old master that is recorded as one to the new master would never be dropped."""
    old, new = start_redis(), start_redis()
    sought = Found(old)

    def found_by_another_thread() -> None:
        sought.server = new

    sought.meanwhile = found_by_another_thread

    async def body(session: RedisSession) -> None:
        await session.ping(TIMEOUT)
        assert isinstance(await session.acquire(make_attempt("job"), TIMEOUT), Granted)
        assert (old.ask("EXISTS", "job"), new.ask("EXISTS", "job")) == (0, 1)

    on(RedisEngine(sought, None), api, body)


@APIS
def test_waiter_waits_at_the_server_where_it_acquires(api: str, start_redis: StartRedis) -> None:
    """The old master is cut off but alive: there the lock expires and stays free; on the new master it is held. A
    waiter that waits at one server and acquires at the other would loop without a pause."""
    old, new = start_redis(), start_redis()
    sought = Found(old)
    with Other(old.url) as before, Other(new.url) as after:
        before.hold("job")
        after.hold("job")

        async def body(session: RedisSession) -> None:
            attempt = make_attempt("job")
            assert isinstance(await session.acquire(attempt, TIMEOUT), Busy)
            contender = session.contender(attempt, TIMEOUT)
            await contender.wait(clock.now())
            sought.server = new
            old.ask("DEL", "job")
            until = clock.now() + 0.3  # sooner than its poll
            await contender.wait(until)
            assert clock.now() >= until
            contender.abandon()

        on(RedisEngine(sought, None), api, body)
