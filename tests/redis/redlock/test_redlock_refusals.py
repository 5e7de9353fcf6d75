"""Refusals by servers (a minority is tolerated, a majority is not), and before any server is asked."""

from __future__ import annotations

import time
import uuid
import warnings
from collections.abc import Sequence
from pathlib import Path

import pytest

import holdfast
from holdfast.testing.conformance.opening import Api
from tests.redis.redlock.support import LASTING, LONG_TIMEOUT, REPAIR_TIME, on, owners
from tests.servers.masters import Masters
from tests.servers.redis import RedisServer

ALL = ("~*", "&*", "+@all")


def make_user(servers: Sequence[RedisServer], password: str, *rights: str, user: str = "") -> str:
    user = user or f"user-{uuid.uuid4().hex[:8]}"
    for server in servers:
        server.ask("ACL", "SETUSER", user, "reset", "on", f">{password}", *rights)
    return user


def url_as(masters: Masters, user: str, password: str) -> str:
    return f"redlock://{user}:{password}@{','.join(server.address for server in masters.servers)}"


# ---- by servers


async def test_refusal_by_a_majority_is_reported_immediately(five_masters: Masters, api: Api) -> None:
    user = make_user(five_masters.servers[:2], "s3cr3t", *ALL)
    make_user(five_masters.servers[2:], "another", *ALL, user=user)
    async with on(five_masters.url, api) as world:
        open_client = holdfast.connect if api == "sync" else holdfast.aio.connect
        refused = open_client(url_as(five_masters, user, "s3cr3t"), unavailable_after=30)
        for ask in (refused.ping, refused.lock("a").acquire, refused.lock("a").try_acquire):
            began = time.monotonic()
            with pytest.raises(holdfast.EngineRefused, match="password") as caught:
                await world.do(ask)
            assert time.monotonic() - began < 5.0, "not after unavailable_after"
            assert "s3cr3t" not in repr(caught.value)
        await world.do(refused.close)
        assert owners(five_masters, "a") == [None] * 5


@pytest.mark.usefixtures("only_woken")
async def test_refusal_by_one_server_is_tolerated(five_masters: Masters, api: Api) -> None:
    """Also if it is the first server, where waiters would queue."""
    user = make_user(five_masters.servers, "pw", *ALL)
    make_user(five_masters.servers[:1], "another", *ALL, user=user)
    async with on(url_as(five_masters, user, "pw"), api) as world:
        holder, waiter, actor = world.connect(ttl=LASTING), world.connect(), world.actor()
        lease = await world.do(holder.lock("it").acquire)
        await world.until(lambda: owners(five_masters, "it") == [None] + [lease.owner] * 4, within=REPAIR_TIME)
        await world.until_renewed(lease)
        await world.do(lambda: lease.renew(ttl=60))  # a waiter that is not woken waits this long
        waiting = actor.do(waiter.lock("it").acquire)
        await world.until_waiting(holder, "it")
        assert [state.name for state in await world.list_locks(holder, "")] == ["it"]
        began = time.monotonic()
        await world.do(lease.release)
        got = await waiting
        assert time.monotonic() - began < 10, "woken"
        assert got.token > lease.token
        await world.do(got.release)


async def test_refusing_server_is_not_reconnected_by_every_request(five_masters: Masters, api: Api) -> None:
    """It is still asked now and then: its password can be corrected. A server with a key of another type is not
    skipped."""
    user, odd, foreign = make_user(five_masters.servers, "pw", *ALL), five_masters.servers[1], five_masters.servers[3]
    make_user([odd], "another", *ALL, user=user)
    foreign.ask("SET", "foreign", "foreign value")
    async with on(url_as(five_masters, user, "pw"), api) as world:
        client = world.connect(request_timeout=LONG_TIMEOUT)
        before = odd.ask("INFO", "stats")["total_connections_received"]
        for _ in range(30):
            await world.do((await world.do(client.lock("it").acquire)).release)
        assert odd.ask("INFO", "stats")["total_connections_received"] - before < 30, "not twice for each of them"
        make_user([odd], "pw", *ALL, user=user)

        async def takes_part() -> bool:
            await world.do((await world.do(client.lock("foreign").acquire)).release)
            lease = await world.do(client.lock("it").acquire)
            held_by = owners(five_masters, "it")
            await world.do(lease.release)
            assert held_by[3] == lease.owner
            return bool(held_by[1] == lease.owner)

        await world.until(takes_part, within=REPAIR_TIME)


async def test_refused_renewal_is_retried_until_the_lease_expires(five_masters: Masters, api: Api) -> None:
    """An ACL can be corrected before the lease expires."""
    user = make_user(five_masters.servers, "pw", *ALL)
    async with on(url_as(five_masters, user, "pw"), api) as world:
        client = world.connect(ttl=6, unavailable_after=20)
        lease = await world.do(client.lock("it").acquire)
        for server in five_masters.servers[1:]:
            server.ask("ACL", "LOG", "RESET")
            server.ask("ACL", "SETUSER", user, "-evalsha")
        renewing = world.actor().do(lease.renew)
        await world.until(lambda: all(server.ask("ACL", "LOG") for server in five_masters.servers[1:]), within=4)
        for server in five_masters.servers[1:]:
            server.ask("ACL", "SETUSER", user, "+@all")
        await renewing
        assert lease.remaining > 3
        await world.do(lease.release)


async def test_foreign_key_is_refused_on_a_majority_and_tolerated_on_a_minority(
    five_masters: Masters, api: Api
) -> None:
    for server in five_masters.servers[:2]:
        server.ask("SET", "it", "foreign value")
    async with on(five_masters.url, api) as world:
        client = world.connect(request_timeout=LONG_TIMEOUT)
        lease = await world.do(client.lock("it").acquire)
        await world.do(lease.release)
        five_masters.servers[2].ask("SET", "it", "foreign value")
        with pytest.raises(holdfast.EngineRefused, match="another lock library's; use namespace="):
            await world.do(client.lock("it").acquire)
        assert [server.ask("GET", "it") for server in five_masters.servers[:3]] == ["foreign value"] * 3
        assert [server.ask("EXISTS", "it") for server in five_masters.servers[3:]] == [0, 0]


# ---- before any server is asked


@pytest.mark.parametrize("api", ["sync", "async"])
@pytest.mark.parametrize(
    "hosts, warned",
    [("a", "one server"), ("a,b", "2 servers"), ("a,b,c,d", "4 servers"), ("a,b,c", None), ("a,b,c,d,e", None)],
)
def test_unsuitable_number_of_servers_is_warned_about(api: Api, hosts: str, warned: str | None) -> None:
    open_client = holdfast.connect if api == "sync" else holdfast.aio.connect
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        open_client(f"redlock://{hosts}")
    if warned is None:
        assert not caught
    else:
        (warning,) = caught
        assert issubclass(warning.category, RuntimeWarning)
        assert warned in str(warning.message)
        assert Path(warning.filename) == Path(__file__), "points to the caller of connect"


def test_unsupported_options_are_refused_with_the_remedy() -> None:
    with pytest.raises(holdfast.UsageError, match="same"):
        holdfast.connect("redlock://a,b,a:6379")
    with holdfast.connect("redlock://a,b,c", replicas=1) as locks, pytest.raises(holdfast.UsageError, match="replicas"):
        locks.lock("x")
    with holdfast.connect("redlock://a,b,c") as locks:
        with pytest.raises(holdfast.UsageError, match="fair"):
            locks.lock("x", fair=True)
        with pytest.raises(holdfast.UsageError, match="replicas"):
            locks.lock("x", replicas=1)
        with pytest.raises(holdfast.UsageError, match="survives_restart"):
            locks.lock("x", require={"survives_restart"})
        locks.lock("x", require={"survives_failover", "fencing"})
