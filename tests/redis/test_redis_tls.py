"""TLS: requests, replies and wake-ups over it, and certificates that are refused."""

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
from tests.redis.support import SOON, TIMEOUT, Later, Other, in_colour, make_claim
from tests.servers.redis import RedisServer

COLOURS = pytest.mark.parametrize("colour", ["blocking", "asyncio"])


def certificates(directory: Path) -> Path:
    """A throw-away authority and a certificate for 127.0.0.1."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True)

    # All extensions that RFC 5280 requires: Python 3.13 and later accept nothing less.
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
def test_lock_works_over_tls(colour: str, tls_server: RedisServer) -> None:
    async def body(session: RedisSession) -> None:
        claim = make_claim("job", description=b'{"thread": "' + b"x" * 3000 + b'"}')
        assert isinstance(await session.acquire(claim, TIMEOUT), Granted)
        assert await session.renew([claim] * 500, 40.0, TIMEOUT) == [Found.OURS] * 500
        assert len((await session.inspect("job", TIMEOUT)).holders) == 1
        assert await session.release(claim, TIMEOUT) is Found.OURS

    in_colour(colour, tls_server.url, body)


@pytest.mark.needs_redis
@pytest.mark.usefixtures("only_woken")
@COLOURS
def test_waiter_is_woken_over_tls(colour: str, tls_server: RedisServer) -> None:
    async def body(session: RedisSession) -> None:
        with Other(tls_server.url) as other:
            held, claim, client = other.hold("job"), make_claim("job"), tls_server.client()
            later = Later(lambda: client.info("stats")["tracking_total_keys"] >= 1, lambda: other.release(held))
            contender = session.contender(claim, TIMEOUT)
            await contender.wait(clock.now() + 10)
            assert time.monotonic() - later.began < SOON
            later.join()
            assert isinstance(await session.acquire(claim, TIMEOUT), Granted)
            await contender.leave()
            await session.release(claim, TIMEOUT)

    in_colour(colour, tls_server.url, body)


@pytest.mark.needs_redis
def test_loss_is_reported_over_tls(tls_server: RedisServer) -> None:
    bell = BLOCKING.wakeup()
    with Other(tls_server.url) as other:
        claim = other.hold("job")
        run(other.session.doze(clock.now(), bell))
        run(other.session.renew([claim], 30.0, TIMEOUT))
        tls_server.client().delete("job")
        assert run(other.session.doze(clock.now() + 5, bell)) == {"job"}
        tls_server.client().client_kill_filter(skipme=True)
        assert run(other.session.doze(clock.now() + 5, bell)) == ALL_NAMES
    bell.close()


@pytest.mark.needs_redis
@COLOURS
def test_unknown_authority_is_refused(colour: str, tls_server: RedisServer) -> None:
    async def body(session: RedisSession) -> None:
        with pytest.raises(EngineRefused, match="certificate"):
            await session.ping(TIMEOUT)

    in_colour(colour, tls_server.url.partition("?")[0], body)
