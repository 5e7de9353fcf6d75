"""Being woken by the changes of a lock without waiting for it, as the observer of an election is."""

from __future__ import annotations

import pytest

from holdfast._runtime import clock
from holdfast.engines.redis.session import RedisSession
from holdfast.engines.redis.waiting.watch import Way
from tests.redis.support import USERS, Other, command, on_api, sync_and_async
from tests.servers.redis import RedisServer

_FAR = 60.0  # it is not waited for


@sync_and_async
async def test_a_release_between_the_callers_look_and_the_next_wait_is_a_wake_up(
    session: RedisSession, server: RedisServer
) -> None:
    """The lock is then as it was when the listener was armed: absent. The caller has seen its holder in between."""
    listener = session.watch("job")
    await listener.arm()
    until = clock.now() + _FAR
    with Other(server.url) as other:
        held = other.hold("job")
        await listener.wait(until)
        other.release(held)
        await listener.wait(until)
        other.hold("job")
        await listener.wait(until)
    assert clock.now() < until
    listener.close()


@pytest.mark.parametrize("api", ["sync", "async"])
def test_where_no_push_is_allowed_the_listener_leaves_the_questions_to_its_caller(
    api: str, redis_server: RedisServer
) -> None:
    """A waiter of the lock asks 30 times a second there, which is too much for one that only observes."""
    command(redis_server, "ACL", "SETUSER", "observer", "on", ">pw", "~*", "&*", *USERS[Way.POLLING].split())
    admin = redis_server.client()

    async def body(session: RedisSession) -> None:
        listener = session.watch("job")
        await listener.arm()
        before = admin.info("commandstats")["cmdstat_pttl"]["calls"]
        until = clock.now() + 0.15
        await listener.wait(until)
        assert clock.now() >= until
        assert admin.info("commandstats")["cmdstat_pttl"]["calls"] == before
        listener.close()

    on_api(api, redis_server.url_as("observer", "pw"), body)
    admin.acl_deluser("observer")
