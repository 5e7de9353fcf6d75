"""Keys, replies, settings, requests and metadata. Pure: no server needed."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from typing import Any

import hiredis
import pytest
import redis
import redis.asyncio

from holdfast._runtime.blocking import run
from holdfast.engines.base import EXCLUSIVE, READ, WRITE, Claim, Found, Holder, Mode, RequestFailed, permits
from holdfast.engines.redis import modes
from holdfast.engines.redis.attempt import RedisAttempt
from holdfast.engines.redis.connections import settings
from holdfast.engines.redis.dialect import grants, keys, leases, metadata, replies
from holdfast.engines.redis.dialect.packing import pack
from holdfast.engines.redis.dialect.requests import Arguments, Call, Closing, Packed
from holdfast.engines.redis.engine import connect
from holdfast.engines.redis.keeper import RedisKeeper
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


@pytest.mark.parametrize("name", ["plain", "with{tag}", "open{", "}closed", "{", "x" * 512, "é{ü}"])
def test_a_renewal_names_the_lock_its_metadata_and_its_counter(name: str) -> None:
    of = keys.keys_of(name)
    assert keys.renewed(name) == (of.name, of.metadata, of.token)


def test_a_renewal_of_many_locks_does_not_push_the_keys_of_others_out_of_memory() -> None:
    """Regression: beyond 4,096 locks all keys of each were made again for each renewal, two thirds of its cost."""
    before = keys.keys_of.cache_info()
    leases.encode_renew([(f"renewed:{number}", "owner:1") for number in range(200)], 30.0, 60_000)
    assert keys.keys_of.cache_info() == before


def test_what_is_remembered_of_a_free_lock_is_small() -> None:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        remembered = [keys.Keys(f"lease:{number}") for number in range(1000)]
        assert tracemalloc.get_traced_memory()[0] - before < 1800 * len(remembered)
    finally:
        tracemalloc.stop()
    assert remembered[0].acquire is remembered[0].acquire


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


def words_of(packed: bytes) -> list[bytes]:
    reader = hiredis.Reader()
    reader.feed(packed)
    words: list[bytes] = reader.gets()
    return words


@pytest.mark.parametrize("description", [b"{}", b"x" * 2000])
def test_direct_requests_contain_what_their_scripts_need(description: bytes) -> None:
    of, encoder = keys.keys_of("job"), grants.AcquireEncoder(60_000)
    acquire = encoder.encode_free(of.acquire_free, "owner:1", 2.5, description)
    named = [key.encode() for key in of.acquire_free]
    assert words_of(acquire)[2:] == [b"4", *named, b"owner:1", b"2500", description, b"60000"]
    named = [key.encode() for key in of.release]
    channel = of.channel.encode()
    _, release = leases.encode_release_directly(of, "owner:1", "PUBLISH", True)
    assert release == leases.encode_release("job", "owner:1", "PUBLISH").packed
    _, release = leases.encode_release_directly(of, "owner:1", "PUBLISH", False)
    assert words_of(release)[2:] == [b"3", *named, b"owner:1", channel]
    _, release = leases.encode_release_directly(of, "owner:1", "SPUBLISH", False)
    assert words_of(release)[2:] == [b"3", *named, b"owner:1", channel, b"SPUBLISH"]


@pytest.mark.parametrize("tokens, fair", [(1, False), (17, False), (1, True)])
def test_request_to_join_is_the_same_with_and_without_an_earlier_place(tokens: int, fair: bool) -> None:
    """It is packed from parts that are kept, unless it names an earlier place in the queue."""
    encoder = grants.AcquireEncoder(60_000)
    attempt = RedisAttempt(Claim("job", "owner:1", 2.5, tokens, fair, description=b"{}" * 600))
    first, entry = encoder.encode_joining(attempt, "w1 p2 2000 7", ())
    again, same = encoder.encode_joining(attempt, "w1 p2 2000 7", ("w0", b"entry"))
    assert words_of(again.packed) == [*words_of(first.packed), b"w0", b"entry"]
    assert entry == same
    assert words_of(first.by_source())[2:] == words_of(first.packed)[2:]


def test_request_by_source_has_the_same_keys_and_arguments() -> None:
    of = keys.keys_of("job")
    direct = Packed(*leases.encode_release_directly(of, "owner:1", "PUBLISH", False))
    for call in (direct, leases.encode_release("job", "owner:1", "PUBLISH")):
        command, source, *rest = words_of(call.by_source())
        assert (command, source.decode()) == (b"EVAL", RELEASE.source)
        assert rest == words_of(call.packed)[2:]


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


@pytest.mark.parametrize("name", ["a", "with{tag}", "é"])
@pytest.mark.parametrize("mode", [READ, WRITE, permits(1, 5), permits(3, 0)])
def test_direct_requests_for_shared_objects_are_those_of_an_attempt(name: str, mode: Mode) -> None:
    owner, about = "3f1e:123456789", b'{"thread":"one"}'
    attempt = RedisAttempt(Claim(name, owner, 2.5, description=about, mode=mode))
    opening, packed = modes.acquire_directly(mode, name, owner, about, 2.5, 1000, "PUBLISH")
    assert packed == modes.acquire(attempt, 1000, "PUBLISH").packed
    assert opening.script is modes.acquire(attempt, 1000, "PUBLISH").script
    opening, packed = modes.release_directly(mode, name, owner, "SPUBLISH")
    assert packed == modes.release(attempt, owner, "SPUBLISH", tombstone=None).packed
    assert opening.script is modes.release(attempt, owner, "SPUBLISH", tombstone=None).script


# ---- renewals


class Answering:
    """In the place of a server. The owner says what becomes of its lease; a call with one ``unreachable`` fails."""

    async def run_tracked(self, calls: Sequence[Call], replicas: int, timeout: float) -> list[Any]:
        return [self._answer(list(call.args)[3:]) for call in calls]

    def _answer(self, args: list[Any]) -> Any:
        owners = [str(each) for each in args if ":" in str(each)]
        if any(owner.startswith("unreachable") for owner in owners):
            return RequestFailed("cut", may_have_happened=True)
        return [0 if owner.startswith("gone") else 1 for owner in owners]


def renewed(*claims: tuple[str, Mode, int]) -> list[Any]:
    """What the keeper says of claims with these owners, modes and replicas."""
    attempts = [
        RedisAttempt(Claim(f"{number}", owner, 30.0, mode=mode, replicas=replicas))
        for number, (owner, mode, replicas) in enumerate(claims)
    ]
    channel: Any = Answering()
    found = run(RedisKeeper(channel, None).renew(attempts, 30.0, 1.0))
    return ["failed" if isinstance(each, RequestFailed) else each for each in found]


def test_each_renewed_lease_gets_its_own_answer() -> None:
    locks = [(f"{'gone' if number % 7 == 0 else 'held'}:{number}", EXCLUSIVE, 0) for number in range(450)]
    expected = [Found.GONE if number % 7 == 0 else Found.OURS for number in range(450)]
    assert renewed(*locks) == expected
    assert renewed() == []


def test_each_renewed_lease_gets_its_own_answer_whatever_its_kind_and_replicas() -> None:
    assert renewed(
        ("held:1", permits(1, 5), 0),
        ("gone:2", EXCLUSIVE, 1),
        ("held:3", READ, 0),
        ("gone:4", EXCLUSIVE, 0),
        ("gone:5", READ, 0),
        ("held:6", EXCLUSIVE, 1),
    ) == [Found.OURS, Found.GONE, Found.OURS, Found.GONE, Found.GONE, Found.OURS]


def test_a_batch_that_fails_does_not_touch_the_others() -> None:
    locks = [("unreachable:1" if number == 250 else f"held:{number}", EXCLUSIVE, 0) for number in range(500)]
    assert renewed(*locks) == [Found.OURS] * 200 + ["failed"] * 200 + [Found.OURS] * 100
