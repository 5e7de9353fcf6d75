"""How waiters for a read-write lock or a semaphore are woken, with and without client tracking."""

from __future__ import annotations

import functools

import pytest

from holdfast._runtime import clock
from holdfast._runtime.blocking import run
from holdfast.engines.base import READ, WRITE, Busy, Mode, permits
from holdfast.engines.redis.session import RedisSession
from holdfast.engines.redis.waiting.watch import Way
from tests.redis.shared.claims import queue_up
from tests.redis.support import TIMEOUT, USERS, Other, command, make_attempt, on_api
from tests.servers.redis import RedisServer
from tests.support.calls import Later
from tests.support.clients import APIS
from tests.support.waiting import eventually

#: What is held, and what is wanted then.
PAIRS = [(READ, WRITE), (WRITE, READ), (WRITE, WRITE), (permits(2, 2), permits(1, 2))]


@pytest.mark.usefixtures("only_woken")
@APIS
@pytest.mark.parametrize("way", [Way.TRACKING, Way.CHANNEL], ids=lambda way: way.value)
@pytest.mark.parametrize("held, wanted", PAIRS, ids=lambda mode: mode.label)
def test_release_wakes_the_waiter(held: Mode, wanted: Mode, way: Way, api: str, redis_server: RedisServer) -> None:
    command(redis_server, "ACL", "SETUSER", "waiter", "on", ">pw", "~*", "&*", *USERS[way].split())
    with Other(redis_server.url) as other:

        async def body(session: RedisSession) -> None:
            holder, attempt = make_attempt("job", mode=held), make_attempt("job", mode=wanted)
            run(other.session.acquire(holder, TIMEOUT))
            contender = await queue_up(session, attempt)
            release = functools.partial(other.session.release, holder, TIMEOUT)
            later = Later(lambda: True, lambda: run(release()))
            began = clock.now()
            while isinstance(await session.acquire(attempt, TIMEOUT), Busy):
                await contender.wait(clock.now() + 30)
            later.join()
            assert clock.now() - began < 10, "it was not woken"
            assert session._channel.way is way  # type: ignore[attr-defined]
            contender.abandon()

        on_api(api, redis_server.url_as("waiter", "pw"), body)
    watcher = redis_server.client()
    eventually(lambda: watcher.keys("holdfast_queue:*") == [])
    watcher.acl_deluser("waiter")
