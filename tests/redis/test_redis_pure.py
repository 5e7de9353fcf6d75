"""Keys, replies, settings, requests and metadata. Pure: no server needed."""

from __future__ import annotations

from typing import Any

import hiredis
import pytest
import redis
import redis.asyncio

from holdfast.engines.base import Claim, Holder, RequestFailed
from holdfast.engines.redis.connections import settings
from holdfast.engines.redis.dialect import keys, metadata, replies
from holdfast.engines.redis.dialect.packing import pack
from holdfast.engines.redis.dialect.requests import Arguments, Call, Closing
from holdfast.engines.redis.engine import connect
from holdfast.engines.redis.scripts import ACQUIRE, RELEASE
from holdfast.engines.redis.session import RedisSession
from holdfast.errors import EngineRefused, InvalidName, UsageError

# ---- keys


@pytest.mark.parametrize(
    "name, key", [("a", "p:{a}"), ("a{b}", "p:a{b}"), ("a{", "p:a{"), ("}a", "p:{}a}"), ("{a}", "p:{a}")]
)
def test_prefix_rule_of_redisson(name: str, key: str) -> None:
    assert keys.prefixed("p", name) == key


def test_names_that_are_side_keys_are_refused() -> None:
    for prefix in ("redisson_lock_token:", "holdfast_owner:", "holdfast_queue:", "holdfast_lock:", "holdfast_probe:"):
        with pytest.raises(InvalidName):
            connect("redis://localhost", {}).validate_name(f"{prefix}{{x}}")
    for name in ("holdfast_ownership", "x:holdfast_owner:", "order:42", "{x}"):
        connect("redis://localhost", {}).validate_name(name)


@pytest.mark.parametrize("name", ["plain", "with{tag}", "open{", "}closed", "{", "x" * 512, "é{ü}"])
def test_name_is_found_by_its_metadata_key(name: str) -> None:
    assert name in keys.names_of(keys.keys_of(name).metadata)


def test_names_that_share_their_metadata_key_are_both_candidates() -> None:
    assert keys.keys_of("x").metadata == keys.keys_of("{x}").metadata
    assert set(keys.names_of("holdfast_owner:{x}")) == {"x", "{x}"}


# ---- replies


@pytest.mark.parametrize(
    "text",
    [
        "LOADING Redis is loading the dataset in memory",
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
        "READONLY You can't write against a read only replica. script: 1234, on @user_script:3.",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        "CLUSTERDOWN The cluster is down",
        "MISCONF Redis is configured to save RDB snapshots",
        "OOM command not allowed when used memory > 'maxmemory'. script: 1234, on @user_script:9.",
        "ERR Error running script (call to f_12): @user_script:9: -OOM command not allowed when used memory > …",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "ERR max number of clients reached",
    ],
)
def test_retryable_errors(text: str) -> None:
    error = replies.error(text)
    assert isinstance(error, RequestFailed)
    assert error.may_have_happened is False


@pytest.mark.parametrize(
    "text",
    [
        "NOAUTH Authentication required.",
        "WRONGPASS invalid username-password pair or user is disabled.",
        "NOPERM this user has no permissions to run the 'evalsha' command",
        "ERR unknown command 'EVALSHA', with args beginning with: 'x' 's3cr3t' ",
        "HOLDFAST the fencing counter is not a number, or has reached 2^53",
        "MOVED 3999 127.0.0.1:6381",
        "something new",
    ],
)
def test_refusing_errors(text: str) -> None:
    error = replies.error(text)
    assert isinstance(error, EngineRefused)
    assert "s3cr3t" not in str(error)
    assert str(error).startswith("Redis refused: ")


@pytest.mark.parametrize(
    "text",
    [
        "ERR Error running script (call to f_1): Lua script attempted to access a non local key",  # Redis 6.2
        "ERR Script attempted to access a non local key in a cluster node script: f_1, on @user_script:37.",  # Redis 7
        "ERR Attempted to access a non local key in a cluster node script: on @user_script:37.",  # Valkey 9
    ],
)
def test_half_moved_slot_is_recognised_in_errors_of_each_server_version(text: str) -> None:
    error = replies.error(text)
    assert isinstance(error, replies.TryAgain)
    assert error.may_have_happened


def test_wrong_type_error_is_distinguished() -> None:
    text = "WRONGTYPE Operation against a key holding the wrong kind of value"
    assert isinstance(replies.error(f"{text} script: 12, on @user_script:9."), replies.WrongType)
    assert isinstance(
        replies.error(f"ERR Error running script (call to f_1): @user_script:9: {text}"), replies.WrongType
    )


# ---- requests


def test_request_from_packed_parts_equals_the_packed_request() -> None:
    """Byte for byte the same as packing everything together."""
    for name in ("job", "é{ü}", "x" * 512):
        of = keys.keys_of(name)
        for script, opening, closing in (
            (ACQUIRE, of.acquire, Closing.of(30000, 1, b'{"host": "h"}', 2592000000, 0, 0)),
            (ACQUIRE, of.acquire, Closing.around(Closing.of(30000, 1), b"{}" * 500, Closing.of(2592000000, 0, 0))),
            (RELEASE, of.release, of.release_closing("PUBLISH")),
        ):
            for owner in ("", "owner:1", "o" * 127, "o" * 128, "ö" * 300):
                args = Arguments(owner, closing)
                plain = pack(("EVALSHA", script.sha, len(opening), *opening, *args))
                assert Call(script, opening, args).packed == plain
                assert Call(script, tuple(opening), tuple(args)).packed == plain
                assert [*args] == [owner, *closing]
                assert len(args) == 1 + len(closing)
                assert args[-1] == closing[-1]


def test_acquire_request_contains_the_fields_of_its_claim() -> None:
    """Its constant end is cached: no claim may get that of another."""
    sent: list[tuple[Any, ...]] = []

    class Recorder:
        async def run(self, call: Call, timeout: float) -> Any:
            reader = hiredis.Reader()
            reader.feed(call.packed)
            sent.append(tuple(reader.gets()[3 + len(call.keys) :]))
            return b"1"

    session = RedisSession(Recorder(), None, 60.0)  # type: ignore[arg-type]
    attempts = [
        session.attempt(Claim("a", f"o:{index}", ttl, tokens, fair, non_barging, description=description))
        for index, (ttl, tokens, fair, non_barging, description) in enumerate(
            [(1.0, 1, False, False, b"{}"), (1.0, 17, False, False, b"{}"), (1.0, 1, True, False, b"{}")]
            + [(1.0, 1, False, True, b"{}"), (2.5, 1, False, False, b"{}"), (1.0, 1, False, False, b'{"pid": 1}')] * 2
        )
    ]
    for attempt in attempts:
        coroutine = session.acquire(attempt, 1.0)
        with pytest.raises(StopIteration):
            coroutine.send(None)
    assert sent == [
        (
            attempt.owner.encode(),
            b"%d" % (attempt.claim.ttl * 1000),
            b"%d" % attempt.claim.tokens,
            attempt.claim.description,
            b"60000",
            b"1" if attempt.claim.fair or attempt.claim.non_barging else b"0",
            b"0",
        )
        for attempt in attempts
    ]


# ---- settings


def test_repr_of_settings_shows_no_secret() -> None:
    url = "rediss://s3cr3t-user:s3cr3t@example.org:7000/3?ssl_password=s3cr3t&client_name=me"
    engine = connect(url, {"token_ttl": None})
    client = connect(redis.Redis(host="example.org", password="s3cr3t"), {})
    for shown in (engine, engine._server, client, client._server):
        assert "s3cr3t" not in repr(shown)
        assert "example.org" in repr(shown)
    assert "rediss://example.org:7000/3" in repr(engine)


def test_invalid_url_is_not_repeated_in_the_error() -> None:
    with pytest.raises(UsageError) as error:
        connect("redis://:s3cr3t/x@host:port/0", {})
    assert "s3cr3t" not in repr(error.value)
    assert error.value.__cause__ is None


@pytest.mark.parametrize("package", [redis, redis.asyncio], ids=["blocking", "asyncio"])
def test_settings_of_an_existing_client_are_used_for_sync_and_async(package: Any) -> None:
    client = package.Redis(
        host="h", port=1, db=2, username="u", password="p", client_name="n", ssl=True, ssl_check_hostname=False,
        ssl_cert_reqs="none", socket_timeout=99, health_check_interval=7, decode_responses=True, protocol=2,
    )  # fmt: skip
    found = settings.from_client(client)
    for connection in (found.blocking_connection(0.5), found.asyncio_connection(0.5)):
        assert (connection.host, connection.port, connection.db) == ("h", 1, 2)
        assert (connection.username, connection.password, connection.client_name) == ("u", "p", "n")
        assert connection.check_hostname is False
        assert (connection.socket_timeout, connection.socket_connect_timeout) == (0.5, 0.5)
        assert connection.retry.get_retries() == 0
        assert connection.health_check_interval == 0
        assert connection.encoder.decode_responses is False
        assert connection.protocol == 3
        assert connection.driver_info is None


def test_unix_and_tcp_settings() -> None:
    unix = settings.from_client(redis.Redis(unix_socket_path="/run/redis.sock", db=2))
    assert unix.address == "unix:///run/redis.sock?db=2"
    assert unix.blocking_connection(1.0).path == unix.asyncio_connection(1.0).path == "/run/redis.sock"
    plain = settings.from_url("redis://", {"socket_keepalive": False, "password": "p"})
    assert plain.address == "redis://localhost:6379/0"
    assert plain.blocking_connection(1.0).socket_keepalive is False
    assert plain.asyncio_connection(1.0).password == "p"
    assert settings.from_url("redis://[::1]:7/1", {}).address == "redis://[::1]:7/1"


def test_certificate_check_is_not_dropped_silently() -> None:
    found = settings.from_url("rediss://h", {"ssl_validate_ocsp": True})
    assert found.blocking_connection(1.0).ssl_validate_ocsp is True
    with pytest.raises(UsageError, match="ssl_validate_ocsp"):
        found.asyncio_connection(1.0)


def test_non_client_is_refused() -> None:
    with pytest.raises(UsageError):
        connect(object(), {})


# ---- metadata


def state(fields: list[bytes], about: bytes | None, *, counter: bytes | None = b"105", pttl: int = 2500) -> Any:
    return metadata.lock_state("a", [fields, pttl, about, counter, 3, b"1700000000", b"500000", [], []])


def test_holder_description_is_parsed() -> None:
    about = b'105 17 1699999999.250000 me:1 {"host": "h", "pid": 7, "thread": "t", "program": "p", "more": 1}'
    found = state([b"me:1", b"1"], about)
    assert found.holders == (Holder("me:1", "h", 7, "t", "p", 1699999999.25, 1700000003.0, 89, 1),)
    assert (found.token, found.waiters, found.remaining) == (105, 3, 2.5)


@pytest.mark.parametrize(
    "about",
    [
        None,
        b"",
        b"105 1 1699999999.250000 other:owner {}",
        b"\xff\xfe\x00",
        b"105 1 1699999999.250000 me:1",
        b"999999999999999999999999 1 1.000000 me:1 {}",
        b"105 1 1.000000 me:1 " + b"[" * 5000,
    ],
)
def test_invalid_metadata_is_ignored(about: bytes | None) -> None:
    (holder,) = state([b"me:1", b"2"], about).holders
    assert holder == Holder("me:1", until=1700000003.0, count=2)


@pytest.mark.parametrize(
    "description",
    [
        b"[1]",
        b"{",
        b'{"host": 1, "pid": "x", "thread": null, "program": {}}',
        b'{"host": "' + b"x" * 300 + b'"}',
        b'{"pid": true}',
        b'{"pid": -1}',
        b'{"pid": 1e9}',
        b"[" * 4000,
    ],
)
def test_hostile_description_is_ignored(description: bytes) -> None:
    (holder,) = state([b"me:1", b"1"], b"105 1 1699999999.250000 me:1 " + description).holders
    assert (holder.host, holder.pid, holder.thread, holder.program) == (None, None, None, None)
    assert holder.token == 105


def test_free_lock_and_lock_with_odd_values_are_parsed() -> None:
    free = state([], None, counter=None, pttl=-2)
    assert (free.holders, free.token, free.remaining) == ((), None, None)
    shared = state([b"r:1", b"1", b"r:2", b"-9"], None, counter=b"12x", pttl=-1)
    assert [holder.owner for holder in shared.holders] == ["r:1", "r:2"]
    assert [holder.count for holder in shared.holders] == [1, None]
    assert (shared.token, shared.remaining) == (None, None)
