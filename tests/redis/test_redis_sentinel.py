"""The engine finds the master watched by sentinels and follows it, and uses no other server, whatever they answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

import holdfast
from holdfast.engines.base import Found, Granted, RequestFailed
from holdfast.engines.redis.connections import handshake
from holdfast.engines.redis.sentinel import connect
from holdfast.engines.redis.session import RedisSession
from holdfast.engines.redis.url import SentinelTarget
from holdfast.errors import EngineRefused
from holdfast.testing.proxy import FaultProxy
from tests.redis.sentinel_support import (
    REQUEST,
    StartRedis,
    StartSentinel,
    engine_for,
    failure_of,
    first_to_be_asked,
    hold_and_release,
    unused_port,
)
from tests.redis.support import TIMEOUT, make_attempt, on, renewed
from tests.servers.redis import RedisServer
from tests.servers.replication import Replication
from tests.servers.sentinel import MASTER_NAME, Sentinel
from tests.support.clients import APIS
from tests.support.waiting import eventually

pytestmark = pytest.mark.needs_redis


# ---- finding the master


@APIS
def test_lock_is_taken_on_the_master(api: str, pair: Replication, start_sentinel: StartSentinel) -> None:
    engine = engine_for(start_sentinel(pair.master), start_sentinel(pair.master))

    async def body(session: RedisSession) -> None:
        await hold_and_release(session)
        assert isinstance(await session.acquire(make_attempt("other"), TIMEOUT), Granted)
        assert pair.master.ask("EXISTS", "other") == 1

    on(engine, api, body)


@APIS
def test_database_and_client_name_apply_to_the_data_node(
    api: str, pair: Replication, start_sentinel: StartSentinel
) -> None:
    engine = engine_for(start_sentinel(pair.master), db=3, client_name="mine")

    async def body(session: RedisSession) -> None:
        assert isinstance(await session.acquire(make_attempt("job"), TIMEOUT), Granted)
        assert pair.master.client(pair.master.url.replace("/0", "/3")).exists("job") == 1
        assert "mine" in {entry["name"] for entry in pair.master.client().client_list()}

    on(engine, api, body)


def test_repr_shows_the_address_and_no_secret(pair: Replication, start_sentinel: StartSentinel) -> None:
    first, second = start_sentinel(pair.master), start_sentinel(pair.master)
    engine = engine_for(first, second, user_info="app:s3cr3t@", sentinel_password="s3cr3t2")
    assert repr(engine) == f"<redis engine redis+sentinel://{first.address},{second.address}/{MASTER_NAME}/0>"
    assert engine.guarantees.survives_failover is False
    assert "until the partition heals" in engine.guarantees.loss_bound
    assert engine_for(first, replicas=1).guarantees.loss_bound.startswith("the ttl")


@APIS
def test_errors_name_the_affected_server(api: str, start_redis: StartRedis, start_sentinel: StartSentinel) -> None:
    master = start_redis()
    engine = engine_for(start_sentinel(master))

    async def body(session: RedisSession) -> None:
        await session.ping(TIMEOUT)
        master.pause()
        with pytest.raises(RequestFailed, match=f"redis://{master.address}/0: no reply in time"):
            await session.ping(0.3)

    on(engine, api, body)


# ---- credentials


@APIS
@pytest.mark.parametrize(
    "sentinel_password, options",
    [
        (None, {}),  # the sentinel needs no password and gets none
        ("pw", {}),  # the user info applies to all hosts
        ("another", {"sentinel_password": "another"}),
        ("another", {"sentinel_username": "default", "sentinel_password": "another"}),
    ],
)
def test_passwords_of_data_nodes_and_sentinels_are_used(
    api: str, sentinel_password: str | None, options: dict[str, Any], start_redis: StartRedis,
    start_sentinel: StartSentinel,
) -> None:  # fmt: skip
    sentinel = start_sentinel(start_redis(password="pw"), password=sentinel_password)
    engine = engine_for(sentinel, user_info=":pw@", **options)
    for _ in range(2):  # the second time the needs of the sentinel are known
        on(engine, api, hold_and_release)


@APIS
def test_wrong_password_is_refused_and_not_shown(
    api: str, start_redis: StartRedis, start_sentinel: StartSentinel
) -> None:
    master = start_redis(password="pw")
    sentinel, dead = start_sentinel(master, password="another"), start_sentinel(master)
    dead.kill()
    wrong: tuple[dict[str, Any], ...] = (
        {"user_info": ":s3cr3t@"},
        {"user_info": ":pw@", "sentinel_password": "s3cr3t"},
        {"user_info": ":s3cr3t@", "sentinel_password": "another"},
        {},
    )
    for options in wrong:
        failure = failure_of(engine_for(sentinel, **options), api)
        assert isinstance(failure, EngineRefused), failure
        assert "s3cr3t" not in texts(failure)
        assert sentinel.address in str(failure)
    # The refusal of the master is final. A refusal of one sentinel is not: another may accept.
    failure = failure_of(engine_for(dead, sentinel, user_info=":s3cr3t@", sentinel_password="another"), api)
    assert isinstance(failure, EngineRefused), failure
    failure = failure_of(engine_for(dead, sentinel, user_info=":pw@", sentinel_password="s3cr3t"), api)
    assert isinstance(failure, RequestFailed), failure
    assert "s3cr3t" not in texts(failure)


def texts(error: BaseException) -> str:
    """Returns all readable text of an error and its causes."""
    found, link = "", [error]
    for each in link:
        found += repr(each) + str(each)
        link += [one for one in (each.__cause__, each.__context__) if one is not None and one not in link]
    return found


# ---- sentinels that do not answer


@APIS
def test_frozen_sentinel_uses_only_its_share_of_the_timeout(
    api: str, pair: Replication, start_sentinel: StartSentinel
) -> None:
    frozen, good = start_sentinel(pair.master), start_sentinel(pair.master)
    frozen.pause()
    engine = engine_for(frozen, good)

    async def body(session: RedisSession) -> None:
        attempt, began = make_attempt("job"), time.monotonic()
        assert isinstance(await session.acquire(attempt, REQUEST), Granted)
        assert time.monotonic() - began < REQUEST * 0.7  # two of three shares are left for the others
        await session.release(attempt, TIMEOUT)

    on(engine, api, body)
    assert first_to_be_asked(engine) == good.address
    on(engine, api, lambda session: session.ping(REQUEST / 4))  # less than the share of the frozen sentinel


@APIS
def test_dead_sentinel_costs_no_time(api: str, pair: Replication, start_sentinel: StartSentinel) -> None:
    dead, good = start_sentinel(pair.master), start_sentinel(pair.master)
    dead.kill()
    engine = engine_for(dead, good)
    on(engine, api, hold_and_release)
    assert first_to_be_asked(engine) == good.address


@APIS
def test_master_without_reachable_sentinels_is_unreachable_in_time(
    api: str, pair: Replication, start_sentinel: StartSentinel
) -> None:
    sentinels = [start_sentinel(pair.master) for _ in range(3)]
    sentinels[0].pause()
    sentinels[1].kill()
    sentinels[2].pause()
    failure = failure_of(engine_for(*sentinels, user_info=":s3cr3t@"), api, 1.6)
    assert isinstance(failure, RequestFailed)
    assert failure.may_have_happened is False
    assert "s3cr3t" not in texts(failure)
    for sentinel in sentinels:
        assert sentinel.address in str(failure)


@APIS
def test_frozen_master_does_not_extend_the_timeout(
    api: str, start_redis: StartRedis, start_sentinel: StartSentinel
) -> None:
    master = start_redis()
    frozen, frozen_too, good = (start_sentinel(master) for _ in range(3))
    for server in (frozen, frozen_too, master):
        server.pause()
    failure = failure_of(engine_for(frozen, frozen_too, good), api, 3.0)
    assert isinstance(failure, RequestFailed)
    assert failure.may_have_happened is False
    assert f"redis://{master.address}" in str(failure)


@APIS
def test_slow_steps_do_not_add_up(api: str, pair: Replication, start_sentinel: StartSentinel) -> None:
    with FaultProxy(pair.master.host, pair.master.port) as slow:
        slow.on("HELLO", times=None).delay(0.8)
        watched = SimpleNamespace(host="127.0.0.1", port=slow.port, password=None)
        failure = failure_of(engine_for(start_sentinel(watched)), api, 1.0)
        assert isinstance(failure, RequestFailed)
        assert failure.may_have_happened is False


# ---- sentinels that are wrong


@APIS
def test_replica_named_by_a_stale_sentinel_is_not_used(
    api: str, start_redis: StartRedis, start_sentinel: StartSentinel, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = start_redis()
    empty = start_redis(f"replicaof {master.host} {unused_port()}")  # a replica that can never sync
    stale, good = start_sentinel(empty), start_sentinel(master)
    attempt = make_attempt("job")

    async def hold(session: RedisSession) -> None:
        assert isinstance(await session.acquire(attempt, TIMEOUT), Granted)

    async def renew(session: RedisSession, found: Found = Found.OURS) -> None:
        assert await session.renew(attempt, 40.0, TIMEOUT) == found

    on(engine_for(good), api, hold)
    engine = engine_for(stale, good)
    on(engine, api, renew)
    assert first_to_be_asked(engine) == good.address
    failure = failure_of(engine_for(stale), api)
    assert isinstance(failure, RequestFailed)
    assert f"redis://{empty.address}" in str(failure)
    assert "replica, not the master" in str(failure)
    # The reason for the rule: the replica would have reported the lock as gone.
    monkeypatch.setattr(handshake, "_check_master", lambda *_: None)
    on(engine_for(stale, good), api, lambda session: renew(session, Found.GONE))


@APIS
def test_another_sentinel_is_asked_if_the_named_master_is_dead(
    api: str, pair: Replication, start_redis: StartRedis, start_sentinel: StartSentinel
) -> None:
    former = start_redis()
    stale, good = start_sentinel(former), start_sentinel(pair.master)
    former.kill()
    engine = engine_for(stale, good)
    on(engine, api, hold_and_release)
    assert first_to_be_asked(engine) == good.address


@APIS
def test_unknown_master_name_is_refused(api: str, pair: Replication, start_sentinel: StartSentinel) -> None:
    sentinels = [start_sentinel(pair.master) for _ in range(2)]
    failure = failure_of(engine_for(*sentinels, master="yourmaster"), api)
    assert isinstance(failure, EngineRefused)
    assert "knows no master 'yourmaster'" in str(failure)
    assert "SENTINEL MASTERS" in str(failure)
    # A sentinel that does not answer may know it.
    sentinels[0].kill()
    failure = failure_of(engine_for(*sentinels, master="yourmaster"), api)
    assert isinstance(failure, RequestFailed)
    assert "knows no master 'yourmaster'" in str(failure)


@APIS
def test_data_node_in_place_of_a_sentinel_is_refused(api: str, pair: Replication) -> None:
    target = SentinelTarget(MASTER_NAME, (("127.0.0.1", pair.master.port),), pair.master.url)
    failure = failure_of(connect(target, {}), api)
    assert isinstance(failure, EngineRefused)
    assert "SENTINEL" in str(failure)


# ---- following the master


@APIS
def test_claim_moves_from_a_demoted_master_to_the_new_one(api: str, start_sentinel: StartSentinel) -> None:
    with Replication(1, links=False) as pair:
        old, new = pair.master, pair.replicas[0]
        sentinel = start_sentinel(old)
        engine = engine_for(sentinel)

        async def body(session: RedisSession) -> None:
            held, late = make_attempt("held"), make_attempt("late")
            assert isinstance(await session.acquire(held, TIMEOUT), Granted)
            assert await session.renew(held, 40.0, TIMEOUT) == Found.OURS
            eventually(lambda: new.ask("EXISTS", "held"))
            exchange(pair, old, new, sentinel)
            # The connections are still open and lead to a replica.
            with pytest.raises(RequestFailed, match="READONLY") as failure:
                await session.acquire(late, TIMEOUT)
            assert failure.value.may_have_happened is False
            assert isinstance(await session.acquire(late, TIMEOUT), Granted)
            assert new.ask("EXISTS", "late") == 1
            answers = [
                await renewed(session, held, 40.0, TIMEOUT),
                await renewed(session, held, 40.0, TIMEOUT),
            ]
            assert answers[-1] is Found.OURS
            assert await session.release(held, TIMEOUT) is Found.OURS

        on(engine, api, body)


@APIS
def test_no_session_uses_the_old_master_once_a_new_one_is_known(api: str, start_sentinel: StartSentinel) -> None:
    """An old master that is cut off still serves clients that reach it. If one session found the new master and another
    stayed at the old one, a lock acquired at one master would be renewed at the other, found missing, and lost."""
    with Replication(1, links=False) as pair:
        old, new = pair.master, pair.replicas[0]
        sentinel = start_sentinel(old)
        engine = engine_for(sentinel)

        async def body(session: RedisSession) -> None:
            before = make_attempt("before")
            assert isinstance(await session.acquire(before, TIMEOUT), Granted)
            assert await session.renew(before, 40.0, TIMEOUT) == Found.OURS
            sentinel.ask("SENTINEL", "REMOVE", MASTER_NAME)
            pair.promote(new)  # the old master is not demoted
            sentinel.ask("SENTINEL", "MONITOR", MASTER_NAME, new.host, new.port, 2)
            on_another_thread(lambda: on(engine, "sync", hold_and_release))
            attempt = make_attempt("after")
            assert isinstance(await session.acquire(attempt, TIMEOUT), Granted)
            assert await session.renew(attempt, 40.0, TIMEOUT) == Found.OURS
            assert (old.ask("EXISTS", "after"), new.ask("EXISTS", "after")) == (0, 1)

        on(engine, api, body)


def on_another_thread(action: Callable[[], None]) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(action).result()


def exchange(pair: Replication, old: RedisServer, new: RedisServer, sentinel: Sentinel) -> None:
    """Switches masters without Sentinel's help, which would have closed all connections to the old master."""
    sentinel.ask("SENTINEL", "REMOVE", MASTER_NAME)
    pair.promote(new)
    pair.demote(old, new)
    sentinel.ask("SENTINEL", "MONITOR", MASTER_NAME, new.host, new.port, 2)


def test_callers_do_not_notice_a_change_of_masters(start_sentinel: StartSentinel) -> None:
    with Replication(1, links=False) as pair:
        old, new = pair.master, pair.replicas[0]
        sentinel = start_sentinel(old)
        with holdfast.connect(f"redis+sentinel://{sentinel.address}/{MASTER_NAME}") as locks:
            with locks.lock("held") as lease:
                eventually(lambda: new.ask("EXISTS", "held"))
                exchange(pair, old, new, sentinel)
                with locks.lock("late", timeout=TIMEOUT) as late:
                    assert late.token > lease.token
                    assert new.ask("EXISTS", "late") == 1
                lease.renew()
            assert new.ask("EXISTS", "held") == 0


async def test_asyncio_callers_do_not_notice_a_change_of_masters(start_sentinel: StartSentinel) -> None:
    with Replication(1, links=False) as pair:
        old, new = pair.master, pair.replicas[0]
        sentinel = start_sentinel(old)
        async with holdfast.aio.connect(f"redis+sentinel://{sentinel.address}/{MASTER_NAME}") as locks:
            async with locks.lock("held") as lease:
                eventually(lambda: new.ask("EXISTS", "held"))
                exchange(pair, old, new, sentinel)
                async with locks.lock("late", timeout=TIMEOUT) as late:
                    assert late.token > lease.token
                    assert new.ask("EXISTS", "late") == 1
                await lease.renew()
            assert new.ask("EXISTS", "held") == 0
