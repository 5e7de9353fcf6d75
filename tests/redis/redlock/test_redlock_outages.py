"""Servers die, freeze or become silent: a minority costs one timeout, a majority is reported (faults N5, N8, D12)."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

import holdfast
from holdfast.engines.redis import scripts
from holdfast.testing.conformance.opening import Api
from tests.redis.redlock.support import LASTING, LONG_TIMEOUT, REPAIR_TIME, Proxies, connect_to_all, on, owners
from tests.servers.masters import Masters
from tests.servers.redis import RedisServer
from tests.support.leaks import threads
from tests.support.waiting import eventually

UNAVAILABLE_AFTER = 0.5
#: The time limit of one step of an acquire: a quarter of the request timeout.
ONE_STEP = 1.25


def library_threads() -> list[str]:
    others = ("holdfast-fault-proxy", "holdfast-fence")  # threads of tests, and of fences used by other tests
    return [name for name in threads() if name.startswith("holdfast-") and not name.startswith(others)]


def counted(server: RedisServer) -> int:
    clients: str = server.ask("CLIENT", "LIST")
    return clients.count("name=counted")


async def test_locks_survive_two_dead_servers_of_five_and_not_three(
    start_masters: Callable[..., Masters], api: Api
) -> None:
    masters = start_masters(5)
    async with on(masters.url, api) as world:
        client, dead = world.connect(ttl=LASTING), masters.servers[1:4]
        other = world.connect(request_timeout=LONG_TIMEOUT, unavailable_after=UNAVAILABLE_AFTER)
        lease = await world.do(client.lock("held").acquire)
        await world.until(lambda: owners(masters, "held") == [lease.owner] * 5, within=REPAIR_TIME)
        for server in dead[:2]:
            server.kill()
        await world.until_renewed(lease)  # by the majority
        for _ in range(3):
            await world.do((await world.do(client.lock("other").acquire)).release)

        dead[2].kill()
        for ask in (other.lock("other").acquire, other.ping):
            began = time.monotonic()
            with pytest.raises(holdfast.QuorumLost) as caught:
                await world.do(ask)
            assert UNAVAILABLE_AFTER <= time.monotonic() - began < LONG_TIMEOUT
            assert len(caught.value.errors) == 3
            for server in dead:
                assert any(server.address in label for label in caught.value.errors), "each dead server is named"
        assert await world.do(lambda: lease.lost.wait(10)) is True
        assert lease.lost_reason == "unreachable"

        for server in dead:
            server.restart()
        again = await world.do(lambda: client.lock("other").acquire(timeout=20))
        assert again.token > lease.token
        assert owners(masters, "other").count(again.owner) >= 3
        await world.do(again.release)


async def test_silent_servers_delay_the_first_acquire_only(start_masters: Callable[..., Masters], api: Api) -> None:
    """One server is frozen, one is in a black hole. Neither closes connections, so each request to them times out."""
    masters = start_masters(5)
    with Proxies(masters) as proxies:
        async with on(proxies.url, api) as world:
            client = world.connect(request_timeout=4 * ONE_STEP)
            await connect_to_all(world, client)
            masters.servers[1].pause()
            proxies[3].black_hole_all()
            began = time.monotonic()
            held = await world.do(client.lock("first").acquire)
            first = time.monotonic() - began
            assert ONE_STEP * 0.8 < first < ONE_STEP * 1.9, "waited for once, for both at the same time"
            began = time.monotonic()
            for number in range(20):
                await world.do((await world.do(client.lock(f"pair-{number}").acquire)).release)
                assert library_threads() == ["holdfast-watchdog"], "no thread per server"
            assert time.monotonic() - began < 8 * ONE_STEP, "not 40 timeouts"
            await world.do(held.release)
            stranger, began = world.connect(request_timeout=4 * ONE_STEP), time.monotonic()
            await world.do((await world.do(stranger.lock("second").acquire)).release)
            assert time.monotonic() - began < ONE_STEP * 1.9, "connected to both at the same time"
            proxies[3].heal()
            masters.servers[1].resume()


async def test_one_connection_for_callers_and_one_for_the_watchdog(five_masters: Masters, api: Api) -> None:
    async with on(five_masters.url + "?client_name=counted", api) as world:
        client = world.connect(request_timeout=LONG_TIMEOUT)
        for number in range(5):
            await world.do((await world.do(client.lock(f"n{number}").acquire)).release)
        lease = await world.do(client.lock("kept", ttl=LASTING).acquire)
        await world.until(lambda: {counted(server) for server in five_masters.servers} == {2}, within=REPAIR_TIME)
        await world.until_renewed(lease)
        # A server that answered late is reconnected, which may still be in progress.
        await world.until(lambda: {counted(server) for server in five_masters.servers} == {2}, within=REPAIR_TIME)
        assert library_threads() == ["holdfast-watchdog"]
        await world.do(lease.release)


def test_skipped_server_is_asked_when_the_others_do_not_suffice(five_masters: Masters, proxies: Proxies) -> None:
    """Two servers were down for a moment. Before the watchdog asks them again, a third loses its data."""
    with holdfast.connect(proxies.url, ttl=4) as locks:
        lease = locks.lock("held").acquire()
        for proxy in proxies[0:2]:
            proxy.black_hole_all()
        renewed = proxies[2].on(script=scripts.RENEW).notice()
        assert renewed.wait(10), "a renewal that the two have not answered"
        for proxy in proxies[0:2]:
            proxy.heal()
        five_masters.servers[4].ask("FLUSHALL")
        eventually(lambda: owners(five_masters, "held") == [lease.owner] * 5, within=REPAIR_TIME)
        assert lease.held
        lease.release()


async def test_server_that_became_a_replica_of_another_does_not_vote(
    start_masters: Callable[..., Masters], api: Api
) -> None:
    """A mistake of an operator. The replica has the data of its master, including the lock: if its vote counted, the
    master would have two votes."""
    masters = start_masters(5, "repl-diskless-sync-delay 0")
    copy = masters.servers[4]
    async with on(masters.url, api) as world:
        client = world.connect(ttl=LASTING)
        other = world.connect(request_timeout=LONG_TIMEOUT, unavailable_after=0.3)
        await connect_to_all(world, client)
        copy.ask("REPLICAOF", masters.servers[0].host, masters.servers[0].port)
        await world.until(lambda: copy.ask("INFO", "replication")["master_link_status"] == "up", within=10)
        lease = await world.do(client.lock("it").acquire)
        await world.until(lambda: owners(masters, "it") == [lease.owner] * 5, within=REPAIR_TIME)
        await world.until_renewed(lease)  # by the other four
        for server in masters.servers[1:3]:
            server.kill()
        with pytest.raises(holdfast.QuorumLost) as caught:
            await world.do(other.lock("other").acquire)
        (message,) = [str(error) for label, error in caught.value.errors.items() if copy.address in label]
        assert "not the master" in message
        assert await world.do(lambda: lease.lost.wait(10)) is True, "two servers and a copy are no majority"
        with pytest.raises(holdfast.LockLost):
            await world.do(lease.release)
        copy.ask("REPLICAOF", "NO", "ONE")
        for server in masters.servers[1:3]:
            server.restart()
