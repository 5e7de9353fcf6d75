"""Sentinel over TLS, from existing clients of redis-py, across forks and cancellations, without leaks."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio.sentinel
import redis.sentinel

from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import Found, Granted, RequestFailed
from holdfast.engines.redis.connections.handshake import open_transport
from holdfast.engines.redis.sentinel import SentinelEngine, connect
from holdfast.engines.redis.session import RedisSession
from holdfast.engines.redis.url import SentinelTarget
from holdfast.errors import EngineRefused, UsageError
from tests.redis.sentinel_support import (
    StartRedis,
    StartSentinel,
    engine_for,
    failure_of,
    hold_and_release,
    unused_port,
)
from tests.redis.support import TIMEOUT, connections, make_attempt, on
from tests.servers.redis import RedisServer
from tests.servers.replication import Replication
from tests.servers.sentinel import MASTER_NAME, Sentinel
from tests.support.certificates import certificates
from tests.support.clients import APIS
from tests.support.forking import in_a_child
from tests.support.leaks import descriptors

pytestmark = pytest.mark.needs_redis

#: redis-py has no types here.
BLOCKING_SENTINEL: Any = redis.sentinel.Sentinel
ASYNCIO_SENTINEL: Any = redis.asyncio.sentinel.Sentinel


# ---- existing clients


@APIS
@pytest.mark.parametrize("manager", [BLOCKING_SENTINEL, ASYNCIO_SENTINEL])
def test_existing_client_is_accepted(
    api: str, manager: Callable[..., Any], start_redis: StartRedis, start_sentinel: StartSentinel
) -> None:
    master = start_redis(password="pw")
    sentinel = start_sentinel(master, password="another")
    count = connections(master, "mine")
    places = [("127.0.0.1", unused_port()), (sentinel.host, sentinel.port)]
    watching = manager(places, sentinel_kwargs={"password": "another"}, password="pw")
    engine = connect(watching.master_for(MASTER_NAME, db=3, client_name="mine"), {"token_ttl": None, "replicas": 0})
    assert repr(engine).endswith(f",{sentinel.address}/{MASTER_NAME}/3>")

    async def body(session: RedisSession) -> None:
        assert isinstance(await session.acquire(make_attempt("job"), TIMEOUT), Granted)
        assert master.client(master.url.replace("/0", "/3")).exists("job") == 1
        assert count() == 1  # ours: the given client has not connected

    on(engine, api, body)


def test_client_for_replicas_is_refused() -> None:
    manager = BLOCKING_SENTINEL([("127.0.0.1", 26379)])
    with pytest.raises(UsageError, match="master_for"):
        connect(manager.slave_for(MASTER_NAME), {})


@APIS
def test_settings_of_an_existing_sentinel_are_used(api: str, pair: Replication, start_sentinel: StartSentinel) -> None:
    places = [(sentinel.host, sentinel.port) for sentinel in [start_sentinel(pair.master)]]
    lonely = BLOCKING_SENTINEL(places, min_other_sentinels=1).master_for(MASTER_NAME)
    failure = failure_of(connect(lonely, {}), api)
    assert isinstance(failure, RequestFailed)
    assert "too few other sentinels" in str(failure)
    elsewhere = BLOCKING_SENTINEL(places, force_master_ip="127.0.0.9").master_for(MASTER_NAME)
    assert f"127.0.0.9:{pair.master.port}" in str(failure_of(connect(elsewhere, {}), api))


# ---- leaks


@APIS
def test_closed_session_leaks_no_descriptor(api: str, pair: Replication, start_sentinel: StartSentinel) -> None:
    dead, guarded, good = (start_sentinel(pair.master, password=password) for password in (None, "pw", None))
    dead.kill()
    engines = [engine_for(dead, guarded, good), engine_for(guarded), engine_for(good, master="unknown")]
    on(engines[0], api, hold_and_release)
    gc.collect()
    before = len(descriptors())
    for _ in range(3):
        engines[0] = engine_for(dead, guarded, good)
        on(engines[0], api, hold_and_release)
        assert isinstance(failure_of(engines[1], api), EngineRefused)
        assert isinstance(failure_of(engines[2], api), EngineRefused)
    gc.collect()  # an unclosed socket warns now
    assert len(descriptors()) <= before


def test_cancelled_sentinel_query_leaks_no_descriptor(pair: Replication, start_sentinel: StartSentinel) -> None:
    frozen = start_sentinel(pair.master)
    frozen.pause()
    engine = engine_for(frozen)

    async def body() -> None:
        before = len(descriptors())
        task = asyncio.create_task(open_transport(engine._server, TIMEOUT))
        while len(descriptors()) == before:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)  # the transport closes its socket in the next iteration of the loop
        assert len(descriptors()) == before

    asyncio.run(body())
    gc.collect()


@APIS
def test_forked_child_shares_no_connection(api: str, pair: Replication, start_sentinel: StartSentinel) -> None:
    engine = engine_for(start_sentinel(pair.master))

    async def body(session: RedisSession) -> None:
        attempt = make_attempt("job")
        assert isinstance(await session.acquire(attempt, TIMEOUT), Granted)
        assert in_a_child(lambda: takes_a_lock(engine))
        assert await session.release(attempt, TIMEOUT) is Found.OURS
        assert pair.master.ask("EXISTS", "of the child") == 1

    on(engine, api, body)


def takes_a_lock(engine: SentinelEngine) -> bool:
    """In a forked child."""
    engine.after_fork_in_child()
    return isinstance(run(engine.session(BLOCKING).acquire(make_attempt("of the child"), TIMEOUT)), Granted)


# ---- TLS


class TlsSentinel(Sentinel):
    """Uses TLS only, for clients and for its master."""

    def __init__(self, master: RedisServer, *config: str, password: str | None = None) -> None:
        super().__init__(master, *config, password=password)
        self.tls = master.tls

    def _lines(self) -> list[str]:
        assert self.tls is not None
        lines = [f"tls-{line}" if line.startswith("port ") else line for line in super()._lines()]
        lines += ["port 0", "tls-replication yes", "tls-auth-clients no", f"tls-ca-cert-file {self.tls}/ca.crt"]
        return [*lines, f"tls-cert-file {self.tls}/server.crt", f"tls-key-file {self.tls}/server.key"]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates(tmp_path_factory.mktemp("sentinel-tls"))


@APIS
def test_tls_works_for_sentinels_and_data_nodes(
    api: str, authority: Path, start_redis: StartRedis, start_sentinel: StartSentinel
) -> None:
    master = start_redis("tls-replication yes", password="pw", tls=authority)
    sentinel = start_sentinel(master, kind=TlsSentinel, password="another")
    places = ((sentinel.host, sentinel.port),)
    trusting = SentinelTarget(MASTER_NAME, places, master.url)
    engine = connect(trusting, {"sentinel_password": "another"})
    assert repr(engine) == f"<redis engine rediss+sentinel://{sentinel.address}/{MASTER_NAME}/0>"
    on(engine, api, hold_and_release)
    wary = SentinelTarget(MASTER_NAME, places, master.url.partition("?")[0])
    failure = failure_of(connect(wary, {"sentinel_password": "another"}), api)
    assert isinstance(failure, EngineRefused)
    assert f"sentinel {sentinel.address}: the server's certificate was not accepted" in str(failure)
