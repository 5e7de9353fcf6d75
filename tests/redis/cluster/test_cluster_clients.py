"""Finding and leaving a cluster: seeds, existing clients of redis-py, passwords, forks, close."""

from __future__ import annotations

import gc
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.cluster import ClusterNode as Startup

import holdfast
from holdfast._runtime import clock
from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import Found, Granted
from holdfast.engines.redis.cluster.session import ClusterSession
from holdfast.errors import EngineRefused
from holdfast.testing.conformance.opening import Api
from tests.redis.cluster.support import SLACK, engine_for, keys, move, names_at, on, user
from tests.redis.support import TIMEOUT, make_attempt
from tests.servers.cluster import RedisCluster
from tests.servers.redis import RedisServer
from tests.support.clients import APIS, open_clients
from tests.support.forking import in_a_child
from tests.support.leaks import descriptors, open_files
from tests.support.waiting import LASTING, eventually, renewed, until

pytestmark = pytest.mark.needs_redis

#: The timeout of a request to a cluster with a seed that does not answer, and the share of it for one seed.
SEED_TIMEOUT, SHARE = 4.5, 1.5


async def hold_and_release(session: ClusterSession, timeout: float = TIMEOUT) -> None:
    attempt = make_attempt("job")
    assert isinstance(await session.acquire(attempt, timeout), Granted)
    assert await session.renew(attempt, 40.0, timeout) == Found.OURS
    assert await session.release(attempt, timeout) is Found.OURS


# ---- seeds


@contextmanager
def silent() -> Iterator[str]:
    """A server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def with_seed_first(cluster: RedisCluster, seed: str) -> str:
    return cluster.url.replace("://", f"://{seed},")


@APIS
@pytest.mark.parametrize("seed", ["dead", "silent", "fresh"])
def test_useless_seed_is_skipped(
    api: str, seed: str, cluster: RedisCluster, start_redis: Callable[..., RedisServer]
) -> None:
    """The seed refuses connections, or never answers, or is a node that has not joined and knows no slots."""

    async def body(session: ClusterSession) -> None:
        began = clock.now()
        await hold_and_release(session, SEED_TIMEOUT)
        assert clock.now() - began < 2 * SHARE, "the useless seed was waited for more than once"

    with silent() as place:
        if seed == "fresh":
            place = start_redis("cluster-enabled yes").address
        elif seed == "dead":
            place = "127.0.0.1:1"
        on(with_seed_first(cluster, place), api, body)


@APIS
async def test_seed_outside_a_cluster_is_refused_with_a_hint(api: Api, redis_server: RedisServer) -> None:
    async with open_clients(api) as ours:
        locks = ours.connect(f"redis+cluster://{redis_server.address}")
        for call in (locks.ping, lambda: locks.lock("job").acquire(), lambda: locks.inspect("job")):
            with pytest.raises(EngineRefused, match="no node of a Redis Cluster; connect with redis://"):
                await ours.do(call)


@APIS
async def test_single_server_url_to_a_cluster_is_refused_with_a_hint(api: Api, cluster: RedisCluster) -> None:
    node = cluster.masters()[0]
    name = next(name for name in map("job-{}".format, range(99)) if cluster.master_of(name) is not node)
    async with open_clients(api) as ours:
        with pytest.raises(EngineRefused, match=r"connect with redis\+cluster://"):
            await ours.acquire(ours.connect(node.url), name)


@APIS
async def test_cluster_without_a_reachable_seed_is_unavailable(api: Api) -> None:
    async with open_clients(api) as ours:
        locks = ours.connect("redis+cluster://127.0.0.1:1,127.0.0.1:2", unavailable_after=0.2)
        began = clock.now()
        with pytest.raises(holdfast.EngineUnavailable, match=r"127\.0\.0\.1:1/") as failed:
            await ours.acquire(locks, "job", timeout=None)
        assert 0.2 <= clock.now() - began < 0.2 + SLACK
        assert not isinstance(failed.value, holdfast.OutcomeUnknown)


# ---- passwords


@APIS
async def test_user_and_password_are_used_for_all_nodes(api: Api, cluster: RedisCluster) -> None:
    with user(cluster, "+@all") as url:
        async with open_clients(api) as ours:
            locks = ours.connect(url, ttl=LASTING)
            leases = [await ours.acquire(locks, names_at(node, 1)[0]) for node in cluster.masters()]
            await until(renewed(*leases))
            wrong = ours.connect(url.replace("s3cr3t", "wr0ng"))
            with pytest.raises(EngineRefused) as refused:
                await ours.acquire(wrong, "job")
            assert "wr0ng" not in str(refused.value)
            assert "s3cr3t" not in repr(locks)


@APIS
async def test_node_that_refuses_affects_only_its_own_locks(api: Api, cluster: RedisCluster) -> None:
    bad, good, _ = cluster.masters()
    with user(cluster, "+@all") as url:
        async with open_clients(api) as ours:
            locks = ours.connect(url)
            await ours.do(locks.ping)
            bad.ask("ACL", "SETUSER", "app", "-@all")
            for _ in range(3):
                with pytest.raises(EngineRefused):
                    await ours.acquire(locks, names_at(bad, 1)[0])
                await ours.do((await ours.acquire(locks, names_at(good, 1)[0])).release)
                move(cluster, "job")  # makes the slot table stale, so that it is requested again
                await ours.caller().do(lambda: locks.inspect(names_at(good, 1)[0]))


# ---- clients of redis-py


def connections(cluster: RedisCluster, name: str) -> int:
    """Returns the number of connections with this name on all nodes."""
    return sum(str(node.ask("CLIENT", "LIST")).count(f" name={name} ") for node in cluster.nodes)


@pytest.fixture
def unconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of redis-py for a cluster that does not exist; normally they connect when they are created."""
    monkeypatch.setattr(redis.cluster.NodesManager, "initialize", lambda *_, **__: None)
    monkeypatch.setattr(redis.cluster, "CommandsParser", lambda _: None)


@APIS
def test_blocking_client_of_redis_py_is_accepted(api: str, cluster: RedisCluster) -> None:
    node = cluster.nodes[0]
    with user(cluster, "+@all"):
        client = redis.RedisCluster(
            node.host, node.port, username="app", password="s3cr3t", client_name="theirs", decode_responses=True
        )  # fmt: skip
        client.set("{x}", "1")
        before = own_connections(client)
        on(client, api, hold_and_release)
        assert own_connections(client) == before
        assert client.get("{x}") == "1"
        client.close()


def own_connections(client: Any) -> set[Any]:
    """Returns the open connections of a blocking client."""
    nodes = client.get_nodes()
    pools = [node.redis_connection.connection_pool for node in nodes if node.redis_connection is not None]
    return {connection for pool in pools for connection in pool._get_free_connections() if connection._sock}


async def test_asyncio_client_of_redis_py_is_accepted(cluster: RedisCluster) -> None:
    """Before its first use it knows only its startup nodes."""
    node = cluster.nodes[0]
    with user(cluster, "+@all"):
        client = redis.asyncio.RedisCluster(node.host, node.port, username="app", password="s3cr3t")
        async with holdfast.aio.connect(client, sharded_pubsub="off") as locks:
            async with locks.lock("job") as lease:
                assert lease.held
            assert not client.nodes_manager.nodes_cache, "the client is unused"
            await client.set("x", "1")
            assert await client.get("x") == b"1"
        await client.aclose()
        session = engine_for(client).session(BLOCKING)
        run(hold_and_release(session))
        run(session.close())


@pytest.mark.parametrize("module", [redis, redis.asyncio])
@pytest.mark.parametrize("by_tls", [False, True])
@pytest.mark.usefixtures("unconnected")
def test_tls_settings_of_a_client_are_kept(module: Any, by_tls: bool) -> None:
    options = {"ssl": True, "ssl_ca_certs": "/ca.crt", "ssl_check_hostname": False} if by_tls else {}
    client = module.RedisCluster("c1", 7000, password="s3cr3t", **options)
    (seed,) = engine_for(client)._seeds
    assert seed.address == f"redis{'s' if by_tls else ''}://c1:7000/0"
    assert seed.keywords["password"] == "s3cr3t"
    assert seed.keywords.get("ssl_ca_certs") == options.get("ssl_ca_certs")
    for connection in (seed.blocking_connection(1.0), seed.asyncio_connection(1.0)):
        assert ("SSL" in type(connection).__name__) == by_tls
    assert "s3cr3t" not in repr(engine_for(client))


@pytest.mark.usefixtures("unconnected")
def test_all_startup_nodes_are_seeds() -> None:
    nodes: list[Any] = [Startup("c1", 7000), Startup("c2", 7001)]  # type: ignore[no-untyped-call]
    client = redis.RedisCluster(startup_nodes=nodes)
    assert repr(engine_for(client)) == "<redis engine redis+cluster://c1:7000,c2:7001>"


# ---- forks and close


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_parent_and_child_work_after_a_fork(cluster: RedisCluster) -> None:
    names = [names_at(node, 1)[0] for node in cluster.masters()]
    with holdfast.connect(cluster.url, ttl=LASTING) as locks:
        leases = [locks.lock(name).acquire() for name in names]
        before = len(open_files("socket:"))

        def in_the_child() -> bool:
            closed = before - len(open_files("socket:")) >= len(names)
            lost = all(lease.lost_reason == "forked" and not lease.held for lease in leases)
            busy = all(locks.lock(name).try_acquire() is None for name in names)
            with locks.lock("the child's") as own:
                return closed and lost and busy and own.held

        assert in_a_child(in_the_child)
        eventually(renewed(*leases))  # over the connections of the parent
        for lease in leases:
            lease.release()
    assert keys(*cluster.masters()) == set()


@APIS
async def test_closed_client_leaves_no_sockets_threads_or_tasks(api: Api, cluster: RedisCluster) -> None:
    for node in cluster.nodes:
        node.ask("PING")
    async with open_clients(api) as ours:
        await ours.do(lambda: None)
        gc.collect()
        before = len(descriptors())
        locks = ours.connect(cluster.url + "?client_name=leaky")
        for name in map("job-{}".format, range(50)):
            await ours.do((await ours.acquire(locks, name)).release)
        held = [await ours.acquire(locks, name) for name in ("a", "b", "c")]
        move(cluster, "a")
        assert await ours.caller().do(lambda: locks.lock("a").try_acquire(timeout=0.5)) is None
        assert connections(cluster, "leaky") > 0
        await ours.do(locks.close)
        assert [lease.lost_reason for lease in held] == ["closed"] * 3
        await until(lambda: connections(cluster, "leaky") == 0)
        await until(lambda: len(descriptors()) <= before)
        await until(lambda: keys(*cluster.masters()) == set())


def test_threads_that_find_a_new_server_concurrently_share_its_channel(cluster: RedisCluster) -> None:
    """The connections of a second channel would never be closed."""
    session = engine_for(cluster.url + "?client_name=many").session(BLOCKING)
    start = threading.Barrier(16)
    results: list[bool] = []

    def work(number: int) -> None:
        attempt = make_attempt(f"job-{number}")
        start.wait(10)
        results.append(isinstance(run(session.acquire(attempt, TIMEOUT)), Granted))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert results == [True] * 16
    run(session.close())
    eventually(lambda: not connections(cluster, "many"), 5.0, "no connection is left")
