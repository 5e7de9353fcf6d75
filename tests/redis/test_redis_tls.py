"""TLS: our own reading and writing on top of it, wake-ups included, and certificates that are not accepted."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast._runtime import clock
from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import ALL_NAMES, Found, Granted
from holdfast.engines.redis.session import RedisSession
from holdfast.errors import EngineRefused
from tests.redis.support import SOON, TIMEOUT, Later, Other, in_colour, keeper_of, make_attempt
from tests.servers.redis import RedisServer

COLOURS = pytest.mark.parametrize("colour", ["blocking", "asyncio"])


def certificates(directory: Path) -> Path:
    """A throw-away authority and a certificate for 127.0.0.1."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True)

    # All that RFC 5280 asks for: from Python 3.13 on, nothing less is accepted.
    (directory / "names").write_text("subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    authority = ("-subj", "/CN=test authority", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.crt", "-days", "2", *authority)
    openssl("req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=server")
    signing = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
    openssl("x509", "-req", "-in", "server.csr", *signing, "-out", "server.crt")
    return directory


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(password="s3cr3t", tls=certificates(tmp_path_factory.mktemp("tls"))) as server:
        yield server


@pytest.mark.needs_redis
@COLOURS
def test_a_lock_over_tls(colour: str, tls_server: RedisServer) -> None:
    async def body(session: RedisSession) -> None:
        attempt = make_attempt("job", description=b'{"thread": "' + b"x" * 3000 + b'"}')
        assert isinstance(await session.acquire(attempt, TIMEOUT), Granted)
        assert await keeper_of(session).renew([attempt] * 500, 40.0, TIMEOUT) == [Found.OURS] * 500
        assert len((await session.inspect("job", TIMEOUT)).holders) == 1
        assert await session.release(attempt, TIMEOUT) is Found.OURS

    in_colour(colour, tls_server.url, body)


@pytest.mark.needs_redis
@pytest.mark.usefixtures("only_woken")
@COLOURS
def test_a_waiter_is_woken_over_tls(colour: str, tls_server: RedisServer) -> None:
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

    in_colour(colour, tls_server.url, body)


@pytest.mark.needs_redis
def test_a_loss_is_told_over_tls(tls_server: RedisServer) -> None:
    bell = BLOCKING.wakeup()
    with Other(tls_server.url) as other:
        attempt = other.hold("job")
        keeper = other.engine.keeper(BLOCKING)
        run(keeper.wait_for_hints(clock.now(), bell))
        run(keeper.renew([attempt], 30.0, TIMEOUT))
        tls_server.client().delete("job")
        assert run(keeper.wait_for_hints(clock.now() + 5, bell)) == {"job"}
        tls_server.client().client_kill_filter(skipme=True)
        assert run(keeper.wait_for_hints(clock.now() + 5, bell)) == ALL_NAMES
        run(keeper.close())
    bell.close()


@pytest.mark.needs_redis
@COLOURS
def test_an_unknown_authority_is_refused(colour: str, tls_server: RedisServer) -> None:
    async def body(session: RedisSession) -> None:
        with pytest.raises(EngineRefused, match="certificate"):
            await session.ping(TIMEOUT)

    in_colour(colour, tls_server.url.partition("?")[0], body)
