"""The Redis engine at work: each operation is one script. Written once, on a channel and a runtime."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from typing import Final

from holdfast._runtime.base import Runtime
from holdfast.engines.base import (
    Busy,
    Claim,
    Found,
    Granted,
    LockState,
    RequestFailed,
)
from holdfast.engines.redis.attempt import RedisAttempt
from holdfast.engines.redis.connections.channel import Channel
from holdfast.engines.redis.dialect import metadata
from holdfast.engines.redis.dialect.keys import keys_of, names_of, pattern
from holdfast.engines.redis.dialect.packing import Argument
from holdfast.engines.redis.dialect.replies import NotALock, WaitRefused, WrongType
from holdfast.engines.redis.dialect.requests import Arguments, Call, Closing, unacknowledged
from holdfast.engines.redis.keeper import FOUND, Leases, milliseconds, tombstone_ms
from holdfast.engines.redis.scripts import ACQUIRE, BREAK, HELD, INSPECT, PING, RELEASE
from holdfast.engines.redis.waiting.contender import RedisContender
from holdfast.errors import EngineRefused

_SCAN_COUNT: Final = 500
_CLOSINGS_CAP: Final = 256


class RedisSession:
    """See :class:`holdfast.engines.base.Session`. ``token_ttl`` in seconds; None: fencing counters never expire."""

    registers = None

    def __init__(self, channel: Channel, runtime: Runtime, token_ttl: float | None) -> None:
        self._channel = channel
        self._runtime = runtime
        self._leases = Leases(channel, token_ttl)
        self._token_ttl = milliseconds(token_ttl)
        self._closings: dict[tuple[float, int, bool, bytes], Closing] = {}
        self._around_description: dict[tuple[float, int, bool], tuple[Closing, Closing]] = {}

    def attempt(self, claim: Claim) -> RedisAttempt:
        return RedisAttempt(claim)

    async def acquire(self, attempt: RedisAttempt, timeout: float) -> Granted | Busy:
        claim = attempt.claim
        keys = keys_of(claim.name)
        settings = (claim.ttl, claim.tokens, claim.fair or claim.non_barging, claim.description)
        closing = self._closings.get(settings)
        if closing is None:
            closing = self._close_request(claim)
        names: Sequence[str] = keys.acquire
        args: Sequence[Argument] = Arguments(attempt.owner, closing)
        waiter = attempt.waiter
        if waiter is not None:
            names, args = (*names, keys.waiter(waiter)), (*args, waiter)
        acknowledged = 0
        try:
            if claim.replicas:
                call = Call(ACQUIRE, names, args)
                reply, acknowledged = await self._channel.run_acknowledged(call, claim.replicas, timeout)
            else:
                reply = await self._channel.run(ACQUIRE, names, args, timeout)
        except WrongType as error:
            raise await self._foreign(claim.name, error, timeout) from error
        except WaitRefused as refusal:
            if refusal.reply.__class__ is not int:
                await self._unreplicated(attempt, 0, timeout)  # granted: leave nothing behind
            raise
        if reply.__class__ is int:
            return Busy(reply / 1000.0 if reply >= 0 else None)
        attempt.waiter = None  # the script has removed it
        if acknowledged < claim.replicas:
            raise await self._unreplicated(attempt, acknowledged, timeout)
        return Granted(int(reply))

    async def _unreplicated(self, attempt: RedisAttempt, acknowledged: int, timeout: float) -> RequestFailed:
        """An under-replicated grant does not count: withdraw it, and let the caller try again."""
        lingers = False
        try:
            await self._withdraw(attempt, timeout)
        except RequestFailed:
            lingers = True
        attempt.reissue(lingers=lingers)
        return RequestFailed(str(unacknowledged(acknowledged, attempt.claim.replicas)), may_have_happened=lingers)

    def _close_request(self, claim: Claim) -> Closing:
        """The end of an acquire request: all that does not name the lock or the owner, packed once.

        Each task of an event loop has a description of its own, often for one lock: what is around that is kept too.
        """
        in_turn = claim.fair or claim.non_barging
        parts = self._around_description.get((claim.ttl, claim.tokens, in_turn))
        if parts is None:
            if len(self._around_description) >= _CLOSINGS_CAP:
                self._around_description.clear()
            parts = (
                Closing.of(math.ceil(claim.ttl * 1000), claim.tokens),
                Closing.of(self._token_ttl, 1 if in_turn else 0, 0),
            )
            self._around_description[claim.ttl, claim.tokens, in_turn] = parts
        closing = Closing.around(parts[0], claim.description, parts[1])
        if len(self._closings) >= _CLOSINGS_CAP:
            self._closings.clear()
        self._closings[claim.ttl, claim.tokens, in_turn, claim.description] = closing
        return closing

    def contender(self, attempt: RedisAttempt, timeout: float) -> RedisContender:
        return RedisContender(self._channel, self._runtime, attempt, keys_of(attempt.claim.name), timeout)

    async def release(self, attempt: RedisAttempt, timeout: float) -> Found:
        keys, how = keys_of(attempt.claim.name), self._channel.publish
        closing = Closing.of(keys.channel, how, tombstone_ms(attempt)) if attempt.unresolved else keys.published(how)
        return FOUND[await self._channel.run(RELEASE, keys.release, Arguments(attempt.owner, closing), timeout)]

    async def renew(self, attempt: RedisAttempt, ttl: float, timeout: float) -> Found:
        (answer,) = await self._leases.renew([attempt], ttl, timeout)
        if isinstance(answer, RequestFailed):
            raise answer
        return answer

    async def _withdraw(self, attempt: RedisAttempt, timeout: float) -> None:
        (answer,) = await self._leases.withdraw([attempt], timeout)
        if isinstance(answer, Exception):
            raise answer

    async def inspect(self, name: str, timeout: float) -> LockState:
        keys = keys_of(name)
        try:
            reply = await self._channel.run(INSPECT, keys.inspect, keys.inspected, timeout)
        except WrongType as error:
            raise await self._foreign(name, error, timeout) from error
        return metadata.lock_state(name, reply)

    async def names(self, prefix: str, timeout: float) -> AsyncIterator[str]:
        """Names that are held through holdfast, found by their metadata. Java's plain locks have none and are not
        found: nothing tells their hashes from other hashes. ``inspect`` sees them all the same."""
        seen = set[str]()  # SCAN may return a key more than once
        for server in await self._channel.servers(timeout):
            async for name in scan(server, prefix, timeout):
                if name not in seen:
                    seen.add(name)
                    if await self._is_held(name, timeout):
                        yield name

    async def _is_held(self, name: str, timeout: float) -> bool:
        """Whether ``name`` is a lock. Metadata may outlive it, and is also that of ``x`` if it is that of ``{x}``."""
        try:
            return bool(await self._channel.run(HELD, (name,), (), timeout))
        except WrongType:
            return False

    async def break_(self, name: str, timeout: float, token: int | None = None) -> bool:
        keys, only = keys_of(name), "" if token is None else str(token)
        args = (keys.channel, self._channel.publish, self._token_ttl, only, "")
        try:
            held = await self._channel.run(BREAK, keys.raise_, args, timeout)
        except WrongType as error:
            raise await self._foreign(name, error, timeout) from error
        return bool(held)

    async def ping(self, timeout: float) -> None:
        await self._channel.run(PING, (), (), timeout)

    async def close(self) -> None:
        await self._channel.close()

    async def _foreign(self, name: str, error: WrongType, timeout: float) -> EngineRefused:
        """The sentence about a key of another type: a string is redis-py's lock, most often."""
        if isinstance(error, NotALock):
            return EngineRefused(f"{name!r} is not a lock: {error}", name=name)
        try:
            kind = (await self._channel.command(("TYPE", name), timeout)).decode()
        except EngineRefused:
            kind = "hash"  # not allowed to look
        found = f"a key beside {name!r} holds a value of another type"
        if kind not in ("hash", "none"):
            found = f"key {name!r} holds a {kind}"
        return EngineRefused(f"{found}, probably another lock library's; use namespace=", name=name)


async def scan(server: Channel, prefix: str, timeout: float) -> AsyncIterator[str]:
    """Names with metadata on one server. Some may not be held any more, some may come twice."""
    cursor = b"0"
    while True:
        request = ("SCAN", cursor, "MATCH", pattern(prefix), "COUNT", _SCAN_COUNT)
        cursor, found = await server.command(request, timeout)
        for key in found:
            for name in names_of(key.decode("utf-8", "replace")):
                if name.startswith(prefix):
                    yield name
        if cursor == b"0":
            return
