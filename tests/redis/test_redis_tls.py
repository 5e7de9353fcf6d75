"""TLS: requests, replies and wake-ups over it, and certificates that are refused."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from holdfast._runtime import clock
from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import ALL_NAMES, Found, Granted
from holdfast.engines.redis.session import RedisSession
from holdfast.errors import EngineRefused
from tests.redis.support import SOON, TIMEOUT, Other, keeper_of, make_attempt, on_api
from tests.servers.redis import RedisServer
from tests.support.calls import Later
from tests.support.certificates import certificates
from tests.support.clients import APIS


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(password="s3cr3t", tls=certificates(tmp_path_factory.mktemp("tls"))) as server:
        yield server


@pytest.mark.needs_redis
@APIS
def test_lock_works_over_tls(api: str, tls_server: RedisServer) -> None:
    async def body(session: RedisSession) -> None:
        attempt = make_attempt("job", description=b'{"thread": "' + b"x" * 3000 + b'"}')
        assert isinstance(await session.acquire(attempt, TIMEOUT), Granted)
        assert await keeper_of(session).renew([attempt] * 500, 40.0, TIMEOUT) == [Found.OURS] * 500
        assert len((await session.inspect("job", TIMEOUT)).holders) == 1
        assert await session.release(attempt, TIMEOUT) is Found.OURS

    on_api(api, tls_server.url, body)


@pytest.mark.needs_redis
@pytest.mark.usefixtures("only_woken")
@APIS
def test_waiter_is_woken_over_tls(api: str, tls_server: RedisServer) -> None:
    async def body(session: RedisSession) -> None:
        with Other(tls_server.url) as other:
            held, attempt, client = other.hold("job"), make_attempt("job"), tls_server.client()
            later = Later(lambda: client.info("stats")["tracking_total_keys"] >= 1, lambda: other.release(held))
            contender = session.contender(attempt, TIMEOUT)
            await contender.wait(clock.now() + 10)
            assert time.monotonic() - later.began < SOON
            later.join()
            assert isinstance(await session.acquire(attempt, TIMEOUT), Granted)
            await contender.leave()
            await session.release(attempt, TIMEOUT)

    on_api(api, tls_server.url, body)


@pytest.mark.needs_redis
def test_loss_is_reported_over_tls(tls_server: RedisServer) -> None:
    wakeup = BLOCKING.wakeup()
    with Other(tls_server.url) as other:
        attempt = other.hold("job")
        keeper = other.engine.keeper(BLOCKING)
        run(keeper.wait_for_hints(clock.now(), wakeup))
        run(keeper.renew([attempt], 30.0, TIMEOUT))
        tls_server.client().delete("job")
        assert run(keeper.wait_for_hints(clock.now() + 5, wakeup)) == {"job"}
        tls_server.client().client_kill_filter(skipme=True)
        assert run(keeper.wait_for_hints(clock.now() + 5, wakeup)) == ALL_NAMES
        run(keeper.close())
    wakeup.close()


@pytest.mark.needs_redis
@APIS
def test_unknown_authority_is_refused(api: str, tls_server: RedisServer) -> None:
    async def body(session: RedisSession) -> None:
        with pytest.raises(EngineRefused, match="certificate"):
            await session.ping(TIMEOUT)

    on_api(api, tls_server.url.partition("?")[0], body)
