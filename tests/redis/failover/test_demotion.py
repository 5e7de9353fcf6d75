"""READONLY: the master became a replica under open connections, at an address that may serve a master again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast._runtime import clock
from holdfast._runtime.asyncio import AsyncioRuntime
from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import RequestFailed
from holdfast.engines.redis import scripts
from holdfast.engines.redis.engine import connect
from holdfast.testing.conformance.opening import Api
from holdfast.testing.proxy import FaultProxy
from tests.redis.support import make_attempt
from tests.servers.redis import RedisServer
from tests.servers.replication import Replication
from tests.support.clients import APIS, LONG_TIMEOUT, SLACK, open_clients
from tests.support.waiting import until

StartReplication = Callable[..., Replication]

#: The name of the connections of the client under test.
NAMED = "?client_name=ours"
#: The ttl of a hold that survives a demotion: longer than the demotion and its detection.
TTL = 4.5


def swap_roles(pair: Replication) -> None:
    """Swaps roles as an operator may do, without closing the connections to the old master."""
    pair.promote(pair.replicas[0])
    pair.demote(pair.master, pair.replicas[0])


def greetings(server: RedisServer) -> int:
    """Returns the number of started connections. A connection that leads to a replica is dropped immediately."""
    count: int = server.ask("INFO", "commandstats")["cmdstat_hello"]["calls"]
    return count


def connections(server: RedisServer) -> set[str]:
    found: list[dict[str, Any]] = server.client().client_list()
    return {entry["id"] for entry in found if entry["name"] == "ours"}


def owners_that_asked(proxy: FaultProxy) -> set[bytes]:
    """Returns the owner fields of all acquire requests that passed."""
    digest = scripts.ACQUIRE.sha.encode()
    asked = [words for words in proxy.seen if words[1:2] and words[1] in (digest, scripts.ACQUIRE.source.encode())]
    return {words[3 + int(words[2])] for words in asked}


@APIS
@pytest.mark.parametrize("replicas", [0, 1])
async def test_acquire_is_retried_within_the_deadline_with_the_same_claim(
    api: Api, replicas: int, start_replication: StartReplication
) -> None:
    pair = start_replication(1)
    with FaultProxy(pair.master.host, pair.master.port) as proxy:
        async with open_clients(api) as ours:
            # A long timeout: otherwise the replica may not be back in time, and the claim would be another one.
            locks = ours.connect(proxy.url + NAMED, ttl=9.0, unavailable_after=20.0, request_timeout=LONG_TIMEOUT)
            held = await ours.acquire(locks, "held")
            await until(lambda: pair.replicas[0].ask("EXISTS", "held"))
            before = connections(pair.master)
            proxy.seen.clear()
            swap_roles(pair)
            greeted = greetings(pair.master)
            waiting = ours.caller().do(lambda: locks.lock("late", replicas=replicas).acquire(timeout=20.0))
            await until(lambda: greetings(pair.master) > greeted + 4)  # several retries
            assert before
            if not replicas:  # with replicas the caller has its own connection
                await until(lambda: not before & connections(pair.master))
            pair.promote(pair.master)
            pair.demote(pair.replicas[0], pair.master)
            late = await waiting
            assert owners_that_asked(proxy) == {late.owner.encode()}
            await ours.do(held.renew)
            assert held.held
            await ours.do(held.release)


@APIS
@pytest.mark.parametrize("replicas", [0, 1])
async def test_server_that_stays_a_replica_is_unavailable_with_a_known_outcome(
    api: Api, replicas: int, start_replication: StartReplication
) -> None:
    pair = start_replication(1)
    async with open_clients(api) as ours:
        locks = ours.connect(pair.url, unavailable_after=0.4, request_timeout=LONG_TIMEOUT)
        await ours.do(locks.ping)
        swap_roles(pair)
        began = clock.now()
        with pytest.raises(holdfast.EngineUnavailable, match=r"replica.*redis\+sentinel://") as refused:
            await ours.acquire(locks, "job", timeout=None, replicas=replicas)
        assert 0.4 <= clock.now() - began < 0.4 + SLACK
        assert not isinstance(refused.value, holdfast.OutcomeUnknown)
        assert pair.replicas[0].ask("KEYS", "*") == []


@APIS
async def test_watchdog_does_not_borrow_a_connection_to_a_demoted_server(
    api: Api, start_replication: StartReplication
) -> None:
    """The new connection is refused because it leads to a replica. The connection of the callers must be refused too:
    over it the replica would report the lock as gone."""
    pair = start_replication(1)
    engine, wakeup = connect(pair.url, {}), BLOCKING.wakeup()
    front = engine.session(BLOCKING if api == "sync" else AsyncioRuntime())
    keeper, attempt = engine.keeper(BLOCKING), make_attempt("job")
    await front.acquire(attempt, LONG_TIMEOUT)
    swap_roles(pair)
    pair.replicas[0].ask("DEL", "job")
    await until(lambda: not pair.master.ask("EXISTS", "job"))

    def renew() -> object:
        run(keeper.wait_for_hints(clock.now(), wakeup))
        (answer,) = run(keeper.renew([attempt], 30.0, LONG_TIMEOUT))
        return answer

    answer = await asyncio.to_thread(renew)
    assert isinstance(answer, RequestFailed)
    assert "replica" in str(answer)
    run(keeper.close())
    await front.close()
    wakeup.close()


@APIS
async def test_hold_survives_a_short_demotion(api: Api, start_replication: StartReplication) -> None:
    pair = start_replication(1)
    async with open_clients(api) as ours:
        lease = await ours.acquire(ours.connect(pair.url, ttl=TTL), "job")
        await until(lambda: pair.replicas[0].ask("EXISTS", "job"))
        swap_roles(pair)
        await until(lambda: pair.master.ask("PTTL", "job") < 750 * TTL)  # after the first watch
        greeted = greetings(pair.master)
        await until(lambda: greetings(pair.master) > greeted)  # a renewal has met the replica
        pair.promote(pair.master)
        await until(lambda: pair.master.ask("PTTL", "job") > 850 * TTL)
        assert lease.held
        await ours.do(lease.release)
        assert pair.master.ask("EXISTS", "job") == 0


@APIS
@pytest.mark.parametrize("replicas", [0, 1])
async def test_one_refusal_drops_all_idle_connections(
    api: Api, replicas: int, start_replication: StartReplication
) -> None:
    """All lead to the same replica. Retrying them one after the other would use up the timeout of the caller."""
    pair = start_replication(1)
    async with open_clients(api) as ours:
        locks = ours.connect(pair.url + NAMED, unavailable_after=0.2, request_timeout=LONG_TIMEOUT, renew=False)
        callers = [ours.caller() for _ in range(12)]
        waiting = [caller.do(locks.lock(f"job-{n}", replicas=replicas).acquire) for n, caller in enumerate(callers)]
        await asyncio.gather(*waiting)
        before = connections(pair.master)
        swap_roles(pair)
        with pytest.raises(holdfast.EngineUnavailable, match=r"replica.*redis\+sentinel://"):
            await ours.acquire(locks, "late", timeout=0, replicas=replicas)
        await until(lambda: not before & connections(pair.master))


@APIS
async def test_demotion_while_waiting_for_replicas_is_retried(api: Api, start_replication: StartReplication) -> None:
    """WAIT is aborted with its own error after the script has run. That is not a refusal: nothing is forbidden."""
    pair = start_replication(1)
    pair.links[0].black_hole_all()
    replica = pair.replicas[0]
    async with open_clients(api) as ours:
        locks = ours.connect(pair.url, replicas=1, request_timeout=LONG_TIMEOUT, unavailable_after=30.0)
        waiting = ours.caller().do(lambda: locks.lock("job").acquire(timeout=20.0))
        await until(lambda: pair.master.ask("INFO", "clients")["blocked_clients"])
        pair.promote(replica)
        pair.demote(pair.master, replica)
        assert pair.master.ask("INFO", "errorstats")["errorstat_UNBLOCKED"]["count"] == 1
        pair.promote(pair.master)
        pair.demote(replica, pair.master)
        lease = await waiting
        assert lease.held
        assert pair.master.ask("HGETALL", "job") == {lease.owner: "1"}
        await ours.do(lease.release)
