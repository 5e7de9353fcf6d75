"""Acquire, release and withdraw: exactly-once effect, tokens, and keys on the server."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Iterator

import pytest

from holdfast._runtime.blocking import run
from holdfast.engines.base import Busy, Found, Granted, RequestFailed
from holdfast.engines.redis.dialect import grants, replication
from holdfast.engines.redis.dialect.keys import keys_of
from holdfast.engines.redis.scripts import JOIN, RAISE, Script
from holdfast.engines.redis.session import RedisSession
from holdfast.errors import EngineRefused
from tests.redis.support import TIMEOUT, Other, keeper_of, make_attempt, on_api, sync_and_async
from tests.servers.redis import RedisServer


async def token_of(session: RedisSession, attempt: object) -> int:
    granted = await session.acquire(attempt, TIMEOUT)  # type: ignore[arg-type]
    assert isinstance(granted, Granted), granted
    return granted.token


@sync_and_async
async def test_grant_excludes_other_claims_until_its_release(session: RedisSession, server: RedisServer) -> None:
    first, second = make_attempt("job"), make_attempt("job")
    assert isinstance(await session.acquire(first, TIMEOUT), Granted)
    busy = await session.acquire(second, TIMEOUT)
    assert isinstance(busy, Busy)
    assert busy.remaining is not None
    assert 20.0 < busy.remaining <= 30.0
    assert await session.release(first, TIMEOUT) is Found.OURS
    assert isinstance(await session.acquire(second, TIMEOUT), Granted)


@sync_and_async
async def test_wire_format_is_that_of_redisson(session: RedisSession, server: RedisServer) -> None:
    attempt = make_attempt("order:42")
    token = await token_of(session, attempt)
    client = server.client()
    assert client.hgetall("order:42") == {attempt.owner.encode(): b"1"}
    assert 20_000 < client.pttl("order:42") <= 30_000
    assert client.get("redisson_lock_token:{order:42}") == str(token).encode()
    with client.pubsub() as listener:  # type: ignore[no-untyped-call]
        listener.subscribe("redisson_lock__channel:{order:42}")
        assert listener.get_message(timeout=5)["type"] == "subscribe"
        await session.release(attempt, TIMEOUT)
        assert listener.get_message(timeout=5)["data"] == b"0"
    assert client.exists("order:42") == 0


@sync_and_async
async def test_repeated_acquire_gets_the_token_of_its_grant(session: RedisSession, server: RedisServer) -> None:
    """The first reply may have been lost, and the counter may have moved since (Java's INCR, break_)."""
    attempt = make_attempt("job")
    token = await token_of(session, attempt)
    server.client().incrby("redisson_lock_token:{job}", 1000)
    assert await token_of(session, attempt) == token
    assert server.client().hgetall("job") == {attempt.owner.encode(): b"1"}


@sync_and_async
async def test_repeated_acquire_extends_and_never_shortens(session: RedisSession, server: RedisServer) -> None:
    attempt = make_attempt("job", ttl=10.0)
    await token_of(session, attempt)
    client = server.client()
    client.pexpire("job", 3_000)
    await token_of(session, attempt)
    assert 5_000 < client.pttl("job") <= 10_000
    assert 5_000 < client.pttl("holdfast_owner:{job}") <= 10_000
    client.pexpire("job", 60_000)
    await token_of(session, attempt)
    assert client.pttl("job") > 50_000


@sync_and_async
async def test_repeated_acquire_without_metadata_gets_a_newer_token(session: RedisSession, server: RedisServer) -> None:
    attempt = make_attempt("job")
    token = await token_of(session, attempt)
    server.client().delete("holdfast_owner:{job}")
    assert await token_of(session, attempt) > token
    assert server.client().hgetall("job") == {attempt.owner.encode(): b"1"}


@sync_and_async
async def test_release_distinguishes_ours_gone_and_stolen(session: RedisSession, server: RedisServer) -> None:
    attempt, thief = make_attempt("job"), make_attempt("job")
    await token_of(session, attempt)
    assert await session.release(attempt, TIMEOUT) is Found.OURS
    assert await session.release(attempt, TIMEOUT) is Found.GONE
    await token_of(session, thief)
    assert await session.release(attempt, TIMEOUT) is Found.STOLEN
    assert server.client().hexists("job", thief.owner)


@sync_and_async
async def test_late_duplicate_is_refused_by_the_tombstone(session: RedisSession, server: RedisServer) -> None:
    released, withdrawn, plain = make_attempt("a"), make_attempt("b"), make_attempt("c")
    for attempt in (released, withdrawn, plain):
        await token_of(session, attempt)
    released.unresolved = True
    assert await session.release(released, TIMEOUT) is Found.OURS
    assert await keeper_of(session).withdraw([withdrawn], TIMEOUT) == [Found.OURS]
    assert await session.release(plain, TIMEOUT) is Found.OURS
    for attempt in (released, withdrawn):
        assert isinstance(await session.acquire(attempt, TIMEOUT), Busy)
    # Without an unresolved request there can be no late duplicate, and no tombstone is written.
    assert isinstance(await session.acquire(plain, TIMEOUT), Granted)
    client = server.client()
    assert client.exists("a", "b") == 0
    (tombstone,) = client.keys("holdfast_lock:{a}:gone:*")
    assert 50_000 < client.pttl(tombstone) <= 60_000


@sync_and_async
async def test_tombstone_outlives_a_long_lease(session: RedisSession, server: RedisServer) -> None:
    attempt = make_attempt("job", ttl=100.0)
    await keeper_of(session).withdraw([attempt], TIMEOUT)
    (tombstone,) = server.client().keys("holdfast_lock:*")
    assert 150_000 < server.client().pttl(tombstone) <= 200_000


@sync_and_async
async def test_tokens_keep_growing_after_the_loss_of_all_data(session: RedisSession, server: RedisServer) -> None:
    client, tokens = server.client(), []
    for spoil in (lambda: None, client.flushall, lambda: client.delete("redisson_lock_token:{job}"), lambda: None):
        attempt = make_attempt("job")
        tokens.append(await token_of(session, attempt))
        await session.release(attempt, TIMEOUT)
        spoil()
    assert tokens == sorted(set(tokens))
    assert abs(tokens[0] - time.time_ns() // 1000) < 60_000_000


@sync_and_async
async def test_block_of_tokens_is_reserved_up_to_its_end(session: RedisSession, server: RedisServer) -> None:
    attempt, following = make_attempt("job", tokens=17), make_attempt("job")
    # With a counter ahead of the clock tokens are consecutive.
    ahead = time.time_ns() // 1000 + 3_600_000_000
    server.client().set("redisson_lock_token:{job}", ahead)
    assert await token_of(session, attempt) == ahead + 17
    await session.release(attempt, TIMEOUT)
    assert await token_of(session, following) == ahead + 18


@pytest.mark.parametrize("counter", ["9007199254740991", "1e400", "nan", "0x7fffffffffffffff", "many"])
@sync_and_async
async def test_invalid_counter_is_refused(session: RedisSession, server: RedisServer, counter: str) -> None:
    server.client().set("redisson_lock_token:{job}", counter)
    with pytest.raises(EngineRefused, match="fencing counter"):
        await session.acquire(make_attempt("job"), TIMEOUT)
    assert server.client().keys("*") == [b"redisson_lock_token:{job}"]


@sync_and_async
async def test_counter_keeps_its_ttl_or_its_lack_of_one(session: RedisSession, server: RedisServer) -> None:
    client, month = server.client(), 30 * 86400
    attempt = make_attempt("ours")
    await token_of(session, attempt)
    assert month - 60 < client.ttl("redisson_lock_token:{ours}") <= month
    await session.release(attempt, TIMEOUT)
    two_days_ago = (int(time.time()) - 2 * 86400) * 1_000_000
    client.set("redisson_lock_token:{ours}", two_days_ago, ex=100)
    assert await token_of(session, attempt) > two_days_ago
    assert month - 60 < client.ttl("redisson_lock_token:{ours}") <= month, "refreshed once in a thirtieth of it"
    client.set("redisson_lock_token:{javas}", 7)
    await token_of(session, make_attempt("javas"))
    assert client.ttl("redisson_lock_token:{javas}") == -1


@pytest.mark.parametrize("api", ["sync", "async"])
def test_token_ttl_none_creates_a_counter_without_expiry(api: str, redis_server: RedisServer) -> None:
    async def body(session: RedisSession) -> None:
        await token_of(session, make_attempt("job"))

    on_api(api, redis_server.url, body, token_ttl=None)
    assert redis_server.client().ttl("redisson_lock_token:{job}") == -1


@pytest.mark.parametrize("api", ["sync", "async"])
def test_token_ttl_none_removes_the_ttl_of_an_earlier_setting(api: str, redis_server: RedisServer) -> None:
    """Otherwise the counter expires in use, and Java's INCR starts again at 1."""
    counter = "redisson_lock_token:{job}"

    async def body(session: RedisSession) -> None:
        attempt = make_attempt("job")
        await token_of(session, attempt)
        await session.release(attempt, TIMEOUT)

    for token_ttl, lasts in ((60.0, False), (None, True), (60.0, True)):
        on_api(api, redis_server.url, body, token_ttl=token_ttl)
        assert (redis_server.client().ttl(counter) == -1) is lasts, "a counter without a TTL never gets one"


@pytest.mark.parametrize("last", [1, 2**52])
@pytest.mark.parametrize("script", [JOIN, RAISE], ids=["join", "raise"])
def test_multi_server_scripts_remove_the_ttl_too(script: Script, last: int, redis_server: RedisServer) -> None:
    attempt, counter = make_attempt("job"), "redisson_lock_token:{job}"
    client = redis_server.client()
    call = grants.encode_raise("job", attempt.owner, 2**51, 0)
    if script is JOIN:
        call = grants.encode_join([grants.Joining("job", attempt.owner, 2**51, 1, b"{}")], 30.0, 0)
    else:
        client.hset("job", attempt.owner, 1)
    client.set(counter, last, ex=60)
    with Other(redis_server.url) as other:
        run(other.session._channel.run(call, TIMEOUT))
    assert client.ttl(counter) == -1
    assert int(client.get(counter) or 0) == max(last, 2**51)


@sync_and_async
@pytest.mark.usefixtures("hurried")
async def test_every_key_has_a_ttl(session: RedisSession, server: RedisServer) -> None:
    held, waits, over = make_attempt("a"), make_attempt("a"), make_attempt("b")
    await token_of(session, held)
    contender = session.contender(waits, TIMEOUT)
    await contender.wait(session._runtime.now() + 0.01)
    await token_of(session, over)
    await keeper_of(session).withdraw([over], TIMEOUT)
    client = server.client()
    keys = client.keys("*")
    assert len(keys) >= 7
    assert {key: client.ttl(key) for key in keys if client.ttl(key) < 0} == {}
    contender.abandon()


@sync_and_async
async def test_key_of_another_type_is_refused_with_the_remedy(session: RedisSession, server: RedisServer) -> None:
    client = server.client()
    client.set("job", "token-of-redis-py")
    attempt = make_attempt("job")
    for operation in (
        session.acquire(attempt, TIMEOUT),
        session.inspect("job", TIMEOUT),
        session.break_("job", TIMEOUT),
    ):
        with pytest.raises(EngineRefused, match="holds a string, probably another lock library's; use namespace="):
            await operation
    assert client.get("job") == b"token-of-redis-py"
    client.sadd("redisson_lock_token:{beside}", "x")
    with pytest.raises(EngineRefused, match="a key beside 'beside' holds"):
        await session.acquire(make_attempt("beside"), TIMEOUT)
    assert client.exists("beside") == 0


@sync_and_async
async def test_lock_replaced_by_a_foreign_value_is_stolen(session: RedisSession, server: RedisServer) -> None:
    """The holder loses the lock. Only a new acquire is refused because of the foreign value."""
    attempt = make_attempt("job")
    await token_of(session, attempt)
    server.client().set("job", "token-of-redis-py")
    assert await session.renew(attempt, 30.0, TIMEOUT) == Found.STOLEN
    assert await session.release(attempt, TIMEOUT) is Found.STOLEN
    assert await keeper_of(session).withdraw([attempt], TIMEOUT) == [Found.STOLEN]
    assert server.client().get("job") == b"token-of-redis-py"


@sync_and_async
async def test_foreign_value_in_place_of_the_queue_does_not_prevent_a_release(
    session: RedisSession, server: RedisServer
) -> None:
    attempt = make_attempt("job")
    await token_of(session, attempt)
    attempt.waiter = "0123456789abcdef"
    server.client().set("holdfast_queue:{job}", "something else")
    assert await keeper_of(session).withdraw([attempt], TIMEOUT) == [Found.OURS]
    assert not server.client().exists("job")


@sync_and_async
@pytest.mark.parametrize("field", ["name", "mode", "12:30", "aa:bb:cc:dd:ee:ff:00:11:22:33", "0123456789abcdef:x"])
async def test_hash_that_is_not_a_lock_is_neither_broken_nor_shown(
    session: RedisSession, server: RedisServer, field: str
) -> None:
    client = server.client()
    client.hset("user:42", mapping={field: "100", make_attempt("user:42").owner: "1"})
    before = client.hgetall("user:42")
    for operation in (session.break_("user:42", TIMEOUT), session.inspect("user:42", TIMEOUT)):
        with pytest.raises(EngineRefused, match="'user:42' is not a lock"):
            await operation
    assert client.hgetall("user:42") == before
    assert not client.exists("redisson_lock_token:{user:42}")


@sync_and_async
async def test_huge_hash_is_refused_without_reading_it(session: RedisSession, server: RedisServer) -> None:
    client = server.client()
    client.hset("big", mapping={make_attempt("big").owner: 1 for _ in range(10_001)})
    client.config_resetstat()
    with pytest.raises(EngineRefused, match="'big' is not a lock"):
        await session.break_("big", TIMEOUT)
    assert "cmdstat_hgetall" not in client.info("commandstats")


@sync_and_async
async def test_locks_of_redisson_can_be_broken(session: RedisSession, server: RedisServer) -> None:
    client, owner = server.client(), "8743c9c0-0795-4907-87fd-6c719a6b4586"
    client.hset("plain", f"{owner}:1", 2)
    client.hset("reactive", f"{owner}:-4611686018427387904", 1)
    client.hset("read-write", mapping={"mode": "write", f"{owner}:1:write": 1, f"{owner}:1": 1})
    for name in ("plain", "reactive", "read-write"):
        assert await session.break_(name, TIMEOUT) is True
        assert not client.exists(name)


@sync_and_async
async def test_x_and_x_in_braces_are_two_locks_that_share_side_keys(session: RedisSession, server: RedisServer) -> None:
    """By Redisson's rule for side keys. Exclusion and tokens are not affected; the output of inspect is."""
    plain, braced = make_attempt("x"), make_attempt("{x}")
    first = await token_of(session, plain)
    second = await token_of(session, braced)
    assert second > first
    assert await keeper_of(session).renew([plain, braced], 30.0, TIMEOUT) == [Found.OURS, Found.OURS]
    assert [holder.owner for holder in (await session.inspect("x", TIMEOUT)).holders] == [plain.owner]
    assert {name async for name in session.names("", TIMEOUT)} == {"x", "{x}"}
    assert await session.release(braced, TIMEOUT) is Found.OURS
    assert isinstance(await session.acquire(make_attempt("x"), TIMEOUT), Busy)
    repeated = await token_of(session, plain)  # the other lock replaced its metadata: a newer token, never an older one
    assert repeated > second
    assert await session.release(plain, TIMEOUT) is Found.OURS


@sync_and_async
async def test_foreign_hash_sharing_side_keys_with_a_lock_is_not_listed(
    session: RedisSession, server: RedisServer
) -> None:
    await token_of(session, make_attempt("x"))
    server.client().hset("{x}", "name", "Ann")
    assert {name async for name in session.names("", TIMEOUT)} == {"x"}


@sync_and_async
async def test_lock_without_a_ttl_is_busy(session: RedisSession, server: RedisServer) -> None:
    server.client().hset("job", "java:1", 1)
    assert await session.acquire(make_attempt("job"), TIMEOUT) == Busy(None)


@sync_and_async
async def test_expired_lock_is_free(session: RedisSession, server: RedisServer) -> None:
    with Other(server.url) as other:
        other.hold("job", ttl=0.1)
        end = time.monotonic() + 5
        while isinstance(await session.acquire(make_attempt("job"), TIMEOUT), Busy):
            assert time.monotonic() < end


@sync_and_async
async def test_break_frees_the_lock_and_raises_the_token(session: RedisSession, server: RedisServer) -> None:
    attempt = make_attempt("job")
    token = await token_of(session, attempt)
    assert await session.break_("job", TIMEOUT) is True
    assert await session.break_("job", TIMEOUT) is False
    assert int(server.client().get("redisson_lock_token:{job}") or 0) > token
    assert server.client().exists("job", "holdfast_owner:{job}") == 0
    assert await session.release(attempt, TIMEOUT) is Found.GONE


@sync_and_async
async def test_grant_without_replica_acknowledgement_is_withdrawn(
    session: RedisSession, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replication, "_LATE", 2.0)  # one second to wait for replicas, the rest for the answer
    attempt = make_attempt("job", replicas=1)
    with pytest.raises(RequestFailed, match="0 of 1 replicas") as failed:
        await session.acquire(attempt, 3.0)
    assert not failed.value.may_have_happened
    assert not attempt.unresolved
    assert not attempt.leftovers
    assert server.client().exists("job") == 0


def test_sync_and_async_sessions_exclude_each_other(redis_server: RedisServer) -> None:
    with Other(redis_server.url) as other:
        other.hold("job")

        async def body(session: RedisSession) -> None:
            assert isinstance(await session.acquire(make_attempt("job"), TIMEOUT), Busy)

        on_api("async", redis_server.url, body)


@sync_and_async
async def test_names_with_braces_follow_the_rule_of_redisson(session: RedisSession, server: RedisServer) -> None:
    for name in ("plain", "with{tag}", "open{", "}closed", "{whole}", "glob*[x]?"):
        attempt = make_attempt(name)
        await token_of(session, attempt)
        assert server.client().exists(name, keys_of(name).token, keys_of(name).metadata) == 3
        assert await session.release(attempt, TIMEOUT) is Found.OURS


def test_one_session_serves_many_threads(redis_server: RedisServer) -> None:
    """Each request has its own connection, so no thread gets the reply of another."""
    with Other(redis_server.url) as other:

        async def pairs(number: int) -> None:
            for _ in range(50):
                attempt = make_attempt(f"job-{number}")
                granted = await asyncio.to_thread(run, other.session.acquire(attempt, TIMEOUT))
                assert isinstance(granted, Granted)
                assert await asyncio.to_thread(run, other.session.release(attempt, TIMEOUT)) is Found.OURS

        async def main() -> None:
            await asyncio.gather(*(pairs(number) for number in range(6)))

        asyncio.run(main())
    assert redis_server.client().keys("job-*") == []


def acquired_directly(session: RedisSession, name: str, owner: str, ttl: float = 30.0) -> object:
    return session.acquire_directly(name, owner, b"{}", ttl, TIMEOUT)


@pytest.fixture
def blocking(redis_server: RedisServer) -> Iterator[RedisSession]:
    with Other(redis_server.url) as client:
        yield client.session


def owner() -> str:
    return f"{uuid.uuid4()}:{random.getrandbits(62)}"


def test_direct_grant_has_the_layout_of_any_other(blocking: RedisSession, redis_server: RedisServer) -> None:
    client, ours, other = redis_server.client(), owner(), owner()
    token = acquired_directly(blocking, "job", ours)
    assert isinstance(token, int)
    assert client.hgetall("job") == {ours.encode(): b"1"}
    assert 20_000 < client.pttl("job") <= 30_000
    assert client.get("redisson_lock_token:{job}") == b"%d" % token
    assert client.pttl("redisson_lock_token:{job}") > 0  # also for a name that was never used
    (holder,) = run(blocking.inspect("job", TIMEOUT)).holders
    assert (holder.owner, holder.token) == (ours, token)
    assert holder.since == pytest.approx(token / 1e6)
    assert isinstance(acquired_directly(blocking, "job", other), Busy)
    assert blocking.release_directly("job", other, TIMEOUT) is Found.STOLEN
    assert blocking.release_directly("job", ours, TIMEOUT) is Found.OURS
    assert blocking.release_directly("job", ours, TIMEOUT) is Found.GONE


@pytest.mark.parametrize("counter", [b"9999999999999998", b"17", b"1794900000000000x", b"text"])
def test_counter_that_is_not_in_order_is_left_to_the_full_script(
    blocking: RedisSession, redis_server: RedisServer, counter: bytes
) -> None:
    client = redis_server.client()
    client.set("redisson_lock_token:{job}", counter, px=90_000)
    assert acquired_directly(blocking, "job", owner()) is None
    assert client.get("redisson_lock_token:{job}") == counter
    assert 0 < client.pttl("redisson_lock_token:{job}") <= 90_000
    assert client.exists("job") == 0


def test_direct_grants_refresh_the_counter_once_in_a_while(blocking: RedisSession, redis_server: RedisServer) -> None:
    client, key = redis_server.client(), "redisson_lock_token:{job}"
    token = acquired_directly(blocking, "job", owner())
    assert isinstance(token, int)
    full = client.pttl(key)
    for age, refreshed in ((1.0, False), (full / 1000 / 10, True)):
        client.delete("job")
        client.set(key, int(token - age * 1e6), px=int(full / 2))
        assert isinstance(acquired_directly(blocking, "job", owner()), int)
        assert (client.pttl(key) > full / 2) is refreshed


def test_direct_grant_gives_no_ttl_to_the_counter_of_java(blocking: RedisSession, redis_server: RedisServer) -> None:
    client, key = redis_server.client(), "redisson_lock_token:{job}"
    client.set(key, int((time.time() - 40 * 86400) * 1e6))
    assert isinstance(acquired_directly(blocking, "job", owner()), int)
    assert client.pttl(key) == -1


def test_direct_grant_removes_the_ttl_of_a_counter_if_none_is_wanted(
    redis_server: RedisServer,
) -> None:
    client, key = redis_server.client(), "redisson_lock_token:{job}"
    client.set(key, 1794900000000000, px=90_000)
    with Other(redis_server.url, token_ttl=None) as keeping:
        assert isinstance(acquired_directly(keeping.session, "job", owner()), int)
        assert client.pttl(key) == -1
        client.delete("job")
        client.set(key, 9999999999999998)
        assert acquired_directly(keeping.session, "job", owner()) is None
        assert client.get(key) == b"9999999999999998"


def test_repeated_or_withdrawn_direct_acquire_has_no_effect(blocking: RedisSession, redis_server: RedisServer) -> None:
    client, ours = redis_server.client(), owner()
    token = acquired_directly(blocking, "job", ours)
    assert acquired_directly(blocking, "job", ours) is None  # its own: acquire.lua answers with the same token
    assert client.get("redisson_lock_token:{job}") == str(token).encode()
    client.delete("job")
    client.set(f"holdfast_lock:{{job}}:gone:{ours}", "1")
    assert acquired_directly(blocking, "job", ours) is None
    assert client.exists("job") == 0


def test_direct_acquire_of_a_name_of_another_kind_is_left_to_the_full_script(
    blocking: RedisSession, redis_server: RedisServer
) -> None:
    client = redis_server.client()
    client.hset("job", mapping={"mode": "read", owner(): 1})
    assert acquired_directly(blocking, "job", owner()) is None
    client.set("text", "another library's")
    assert acquired_directly(blocking, "text", owner()) is None
