"""An ACL without one of the commands of a script: the request is refused and leaves no key without a TTL."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import pytest

from holdfast._runtime import clock
from holdfast._runtime.blocking import run
from holdfast.engines.base import EXCLUSIVE, READ, WRITE, Found, Granted, Mode, RequestFailed, permits
from holdfast.engines.redis import scripts
from holdfast.engines.redis.attempt import RedlockAttempt
from holdfast.engines.redis.dialect import grants
from holdfast.engines.redis.engine import RedisEngine, connect
from holdfast.engines.redis.scripts import Script
from holdfast.engines.redis.session import RedisSession
from holdfast.errors import EngineRefused
from tests.redis.support import TIMEOUT, Other, command, keeper_of, make_attempt, on, renewed
from tests.servers.redis import RedisServer
from tests.support.soak import soak
from tests.support.waiting import eventually

#: A failed publish does not fail a release: the lock is free nevertheless.
_NO_MATTER: Final = frozenset({"publish", "spublish"})
_NAME: Final = "job"

Act = Callable[[RedisSession, RedlockAttempt], Coroutine[Any, Any, object]]


async def _acquire(session: RedisSession, attempt: RedlockAttempt) -> object:
    return await session.acquire(attempt, TIMEOUT)


async def _acquire_directly(session: RedisSession, attempt: RedlockAttempt) -> object:
    """As most acquires: by a script of its own, and by the other one if that has failed."""
    claim = attempt.claim
    reply = session.acquire_directly(claim.name, attempt.owner, claim.description, claim.ttl, TIMEOUT)
    if isinstance(reply, Awaitable):
        reply = session.acquired(await reply)
    return reply if isinstance(reply, int) else await session.acquire(attempt, TIMEOUT)


async def _acquire_again(session: RedisSession, attempt: RedlockAttempt) -> object:
    """A repeated acquire after a lost reply."""
    return await session.acquire(attempt, TIMEOUT)


async def _acquire_fairly(session: RedisSession, attempt: RedlockAttempt) -> object:
    attempt.claim, attempt.waiter = attempt.claim._replace(fair=True), "0123456789abcdef"
    return await session.acquire(attempt, TIMEOUT)


async def _wait(session: RedisSession, attempt: RedlockAttempt) -> object:
    contender = session.contender(attempt, TIMEOUT)
    try:
        await contender.wait(clock.now() + 0.01)
        return None
    finally:
        contender.abandon()


async def _renew(session: RedisSession, attempt: RedlockAttempt) -> object:
    return _raised(await renewed(session, attempt, 60.0, TIMEOUT))


async def _release(session: RedisSession, attempt: RedlockAttempt) -> object:
    attempt.unresolved = True
    return await session.release(attempt, TIMEOUT)


async def _withdraw(session: RedisSession, attempt: RedlockAttempt) -> object:
    attempt.waiter = "0123456789abcdef"
    (answer,) = await keeper_of(session).withdraw([attempt], TIMEOUT)
    return _raised(answer)


async def _break(session: RedisSession, attempt: RedlockAttempt) -> object:
    return await session.break_(_NAME, TIMEOUT)


async def _inspect(session: RedisSession, attempt: RedlockAttempt) -> object:
    return await session.inspect(_NAME, TIMEOUT)


async def _join(session: RedisSession, attempt: RedlockAttempt) -> object:
    call = grants.encode_join([grants.Joining(_NAME, attempt.owner, 1, 1, b"{}")], 30.0, 86_400_000)
    return await session._channel.run(call, TIMEOUT)


async def _raise(session: RedisSession, attempt: RedlockAttempt) -> object:
    call = grants.encode_raise(_NAME, attempt.owner, 2**52, 86_400_000)
    return await session._channel.run(call, TIMEOUT)


def _raised(answer: object) -> object:
    """Raises the refusal of a renewal, which is returned as the cause of a failure because renewals are retried."""
    if isinstance(answer, Exception):
        raise answer.__cause__ or answer
    return answer


async def _resize(session: RedisSession, attempt: RedlockAttempt) -> object:
    await session.resize(_NAME, 5, TIMEOUT)
    return None


async def _downgrade(session: RedisSession, attempt: RedlockAttempt) -> object:
    """A release that leaves a reader."""
    nested = session.nested(make_attempt(_NAME, mode=READ).claim, attempt)
    await session.acquire(nested, TIMEOUT)
    return await session.release(attempt, TIMEOUT)


_PERMITS: Final = permits(2, 5)
#: The operation, its script, and whether the claim already holds the lock.
_ACTS: Final[list[tuple[Act, Script, bool]]] = [
    (_acquire, scripts.ACQUIRE, False),
    (_acquire_directly, scripts.ACQUIRE_FREE, False),
    (_acquire_again, scripts.ACQUIRE, True),
    (_acquire_fairly, scripts.ACQUIRE, False),
    (_wait, scripts.ENQUEUE, False),
    (_renew, scripts.RENEW, True),
    (_release, scripts.RELEASE, True),
    (_withdraw, scripts.RELEASE, True),
    (_break, scripts.BREAK, True),
    (_inspect, scripts.INSPECT, True),
    (_join, scripts.JOIN, False),
    (_raise, scripts.RAISE, True),
]
#: The same for other kinds, with the mode of the claim.
_SHARED_ACTS: Final[list[tuple[Act, Script, bool, Mode]]] = [
    (_acquire, scripts.RW_ACQUIRE, False, READ),
    (_acquire_again, scripts.RW_ACQUIRE, True, READ),
    (_acquire_fairly, scripts.RW_ACQUIRE, False, WRITE),
    (_renew, scripts.RW_RENEW, True, READ),
    (_release, scripts.RW_RELEASE, True, READ),
    (_downgrade, scripts.RW_RELEASE, True, WRITE),
    (_withdraw, scripts.RW_RELEASE, True, WRITE),
    (_break, scripts.RW_BREAK, True, READ),
    (_inspect, scripts.RW_INSPECT, True, READ),
    (_acquire, scripts.PERMITS_ACQUIRE, False, _PERMITS),
    (_acquire_again, scripts.PERMITS_ACQUIRE, True, _PERMITS),
    (_acquire_fairly, scripts.PERMITS_ACQUIRE, False, _PERMITS),
    (_renew, scripts.PERMITS_RENEW, True, _PERMITS),
    (_release, scripts.PERMITS_RELEASE, True, _PERMITS),
    (_withdraw, scripts.PERMITS_RELEASE, True, _PERMITS),
    (_resize, scripts.PERMITS_RESIZE, True, _PERMITS),
    (_break, scripts.PERMITS_BREAK, True, _PERMITS),
    (_inspect, scripts.PERMITS_INSPECT, True, _PERMITS),
]
_ALL_ACTS: Final = [*((act, script, held, EXCLUSIVE) for act, script, held in _ACTS), *_SHARED_ACTS]


def _used(script: Script) -> list[str]:
    commands = re.findall(r"\bp?call\(\s*'(\w+)'", script.source)
    return sorted({each.lower() for each in commands} - _NO_MATTER)


def _endless(server: RedisServer) -> list[str]:
    """Returns the keys without an expiry."""
    with server.client() as client:
        return [key.decode() for key in client.scan_iter() if client.pttl(key) == -1]


def _engine(server: RedisServer, *denied: str) -> RedisEngine:
    rights = (f"-{each}" for each in denied)
    command(server, "ACL", "SETUSER", "locker", "reset", "on", ">pw", "~*", "&*", "+@all", *rights)
    return connect(server.url.replace("redis://", "redis://locker:pw@"), {})


@pytest.mark.parametrize(
    "act, script, held, mode",
    _ALL_ACTS,
    ids=[f"{act.__name__.strip('_')}-{mode.label}" for act, _, _, mode in _ALL_ACTS],
)
@pytest.mark.parametrize("api", ["sync", soak("async", reason="the scripts are the same, and the refusals too")])
def test_denying_any_command_leaves_no_key_without_a_ttl(
    act: Act, script: Script, held: bool, mode: Mode, api: str, redis_server: RedisServer
) -> None:
    refusals = list[str]()
    for denied in _used(script):
        redis_server.flush()
        attempt = make_attempt(_NAME, mode=mode)
        with Other(redis_server.url) as other:
            if held:
                run(other.session.acquire(attempt, TIMEOUT))
        engine = _engine(redis_server, denied)

        async def body(session: RedisSession, attempt: RedlockAttempt = attempt) -> None:
            try:
                await act(session, attempt)
            except EngineRefused as refusal:
                refusals.append(str(refusal))

        on(engine, api, body)
        assert _endless(redis_server) == [], f"without {denied}"
    assert refusals, "no command was refused: the test is inconclusive"
    assert all("ACL" in each and "doctor" in each for each in refusals), refusals


@pytest.mark.parametrize("denied", [("pexpire",), ("pexpire", "del"), ("hset",), ("set",)])
def test_refused_acquire_leaves_the_lock_free(denied: tuple[str, ...], redis_server: RedisServer) -> None:
    async def body(session: RedisSession) -> None:
        with pytest.raises(EngineRefused):
            await session.acquire(make_attempt(_NAME), TIMEOUT)

    on(_engine(redis_server, *denied), "sync", body)
    eventually(lambda: not redis_server.client().exists(_NAME))  # at worst overwritten with a TTL of a millisecond
    with Other(redis_server.url) as other:
        other.hold(_NAME)


@pytest.mark.parametrize("denied", ["pexpire", "hset", "incrby", "zadd"])
def test_refused_acquire_takes_no_permit(denied: str, redis_server: RedisServer) -> None:
    with Other(redis_server.url) as other:
        run(other.session.resize(_NAME, 3, TIMEOUT))

        async def body(session: RedisSession) -> None:
            with pytest.raises(EngineRefused):
                await session.acquire(make_attempt(_NAME, mode=permits(2, 3)), TIMEOUT)

        on(_engine(redis_server, denied), "sync", body)
        state = run(other.session.inspect(_NAME, TIMEOUT))
        assert (state.holders, state.size, state.free) == ((), 3, 3)
        assert redis_server.client().keys() == [_NAME.encode()]


@pytest.mark.parametrize("mode", [READ, WRITE], ids=lambda mode: mode.label)
@pytest.mark.parametrize("denied", ["pexpire", "hset", "set"])
def test_refused_acquire_leaves_the_read_write_lock_free(denied: str, mode: Mode, redis_server: RedisServer) -> None:
    async def body(session: RedisSession) -> None:
        with pytest.raises(EngineRefused):
            await session.acquire(make_attempt(_NAME, mode=mode), TIMEOUT)

    on(_engine(redis_server, denied), "sync", body)
    with Other(redis_server.url) as other:
        assert isinstance(run(other.session.acquire(make_attempt(_NAME, mode=WRITE), TIMEOUT)), Granted)


def test_server_out_of_memory_grants_nothing_and_stores_nothing(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis()
    with Other(server.url) as other:
        held = other.hold("held")
        server.client().config_set("maxmemory", 1)
        for attempt in (make_attempt(_NAME), make_attempt(_NAME, fair=True)):
            with pytest.raises(RequestFailed, match="OOM"):
                run(other.session.acquire(attempt, TIMEOUT))
            with pytest.raises(RequestFailed, match="OOM"):
                run(other.session.contender(attempt, TIMEOUT).wait(clock.now() + 0.01))
        held.unresolved = True
        with pytest.raises(RequestFailed, match="OOM"):
            run(other.session.release(held, TIMEOUT))
        assert run(other.session.renew(held, 60.0, TIMEOUT)) == Found.OURS
        server.client().config_set("maxmemory", 0)
        assert _endless(server) == []
        assert run(other.session.release(held, TIMEOUT)) is Found.OURS
        assert isinstance(run(other.session.acquire(make_attempt(_NAME), TIMEOUT)), Granted)
