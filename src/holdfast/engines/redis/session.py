"""The Redis engine for a client's callers: each operation is one script. Written once, on a channel and a runtime."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from holdfast._runtime.base import Runtime
from holdfast.engines.base import Busy, Found, Granted, LockState, RequestFailed
from holdfast.engines.redis.attempt import RedisAttempt, withdrawal
from holdfast.engines.redis.connections.channel import Channel, answer_of
from holdfast.engines.redis.dialect import grants, leases, operators, transfers
from holdfast.engines.redis.dialect.keys import names_of, pattern
from holdfast.engines.redis.dialect.packing import counter_ttl
from holdfast.engines.redis.dialect.replication import unacknowledged
from holdfast.engines.redis.dialect.replies import NotALock, WaitRefused, WrongType
from holdfast.engines.redis.registers import RedisRegisters
from holdfast.engines.redis.waiting.contender import RedisContender
from holdfast.errors import EngineRefused

_SCAN_COUNT: Final = 500
#: The time of a request whose deadline is over (s).
_LEAST: Final = 0.001


class RedisSession:
    """See :class:`holdfast.engines.base.Session`. ``token_ttl`` in seconds; None: fencing counters never expire."""

    attempt = RedisAttempt

    def __init__(self, channel: Channel, runtime: Runtime, token_ttl: float | None) -> None:
        self._channel = channel
        self._runtime = runtime
        self._counter_ttl = counter_ttl(token_ttl)
        self._encode_acquire = grants.AcquireEncoder(self._counter_ttl).encode
        self.registers = RedisRegisters(channel, runtime, self._counter_ttl)

    async def acquire(self, attempt: RedisAttempt, timeout: float) -> Granted | Busy:
        claim = attempt.claim
        call = self._encode_acquire(
            claim.name,
            attempt.owner,
            claim.ttl,
            claim.tokens,
            claim.description,
            non_barging=claim.fair or claim.non_barging,
            waiter=attempt.waiter,
        )
        acknowledged = 0
        try:
            if claim.replicas:
                reply, acknowledged = await self._channel.run_acknowledged(call, claim.replicas, timeout)
            else:
                reply = await self._channel.run(call, timeout)
        except WrongType as error:
            raise await self._foreign(claim.name, error, timeout) from error
        except WaitRefused as refusal:
            if isinstance(grants.decode_acquire(refusal.reply), Granted):
                await self._unreplicated(attempt, 0, timeout)  # leave nothing behind
            raise
        answer = grants.decode_acquire(reply)
        if answer.__class__ is Busy:
            return answer
        attempt.waiter = None  # the script has removed it
        if acknowledged < claim.replicas:
            raise await self._unreplicated(attempt, acknowledged, timeout)
        return answer

    async def _unreplicated(self, attempt: RedisAttempt, acknowledged: int, timeout: float) -> RequestFailed:
        """An under-replicated grant does not count: withdraw it, and let the caller try again."""
        lingers = False
        try:
            await self._withdraw(attempt, timeout)
        except RequestFailed:
            lingers = True
        attempt.reissue(lingers=lingers)
        return RequestFailed(str(unacknowledged(acknowledged, attempt.claim.replicas)), may_have_happened=lingers)

    async def _withdraw(self, attempt: RedisAttempt, timeout: float) -> None:
        """Remove everything that the attempt may hold. Leftovers that cannot be removed now stay noted."""
        deadline = self._runtime.now() + timeout
        failure: RequestFailed | EngineRefused | None = None
        for owner in (attempt.owner, *attempt.leftovers):
            left = max(deadline - self._runtime.now(), _LEAST)
            try:
                await self._channel.run(withdrawal(attempt, owner, self._channel.publish), left)
            except RequestFailed as error:
                failure = error
                continue
            except EngineRefused as error:
                if owner == attempt.owner:
                    failure = error
            attempt.leftovers = tuple(each for each in attempt.leftovers if each != owner)
        if failure is not None:
            raise failure

    def contender(self, attempt: RedisAttempt, timeout: float) -> RedisContender:
        return RedisContender(self._channel, self._runtime, attempt, timeout)

    async def release(self, attempt: RedisAttempt, timeout: float) -> Found:
        claim = attempt.claim
        tombstone = leases.tombstone_for(claim.ttl) if attempt.unresolved else None
        call = leases.encode_release(claim.name, attempt.owner, self._channel.publish, tombstone=tombstone)
        return leases.decode_release(await self._channel.run(call, timeout))

    async def transfer(self, attempt: RedisAttempt, from_owner: str, timeout: float) -> Granted | Found:
        claim = attempt.claim
        call = transfers.encode_transfer(claim, attempt.owner, from_owner, self._counter_ttl)
        answer = await answer_of(self._channel, call, claim.replicas, timeout)
        if isinstance(answer, RequestFailed | EngineRefused):
            raise answer
        return transfers.decode_transfer(answer)

    async def renew(self, attempt: RedisAttempt, ttl: float, timeout: float) -> Found:
        answer = await self._renew(attempt, ttl, timeout)
        if isinstance(answer, RequestFailed):
            raise answer
        return answer

    async def _renew(
        self, attempt: RedisAttempt, ttl: float, timeout: float, *, lock_only: bool = False
    ) -> Found | RequestFailed:
        replicas = attempt.claim.replicas
        call = leases.encode_renew(
            [(attempt.claim.name, attempt.owner)],
            ttl,
            self._counter_ttl,
            always_write=replicas > 0,
            lock_only=lock_only,
        )
        (answer,) = leases.decode_renew(await answer_of(self._channel, call, replicas, timeout), 1)
        return answer

    async def inspect(self, name: str, timeout: float) -> LockState:
        try:
            reply = await self._channel.run(operators.encode_inspect(name), timeout)
        except WrongType as error:
            raise await self._foreign(name, error, timeout) from error
        return operators.decode_inspect(name, reply)

    async def names(self, prefix: str, timeout: float) -> AsyncIterator[str]:
        """Names that are held through holdfast, found by their metadata. Java's plain locks have none and are not
        found: their hashes look like any other hash. ``inspect`` shows them nevertheless."""
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
            return operators.decode_held(await self._channel.run(operators.encode_held(name), timeout))
        except WrongType:
            return False

    async def break_(self, name: str, timeout: float, token: int | None = None) -> bool:
        call = operators.encode_break(name, self._channel.publish, self._counter_ttl, token=token)
        try:
            return operators.decode_break(await self._channel.run(call, timeout))
        except WrongType as error:
            raise await self._foreign(name, error, timeout) from error

    async def ping(self, timeout: float) -> None:
        await self._channel.run(operators.encode_ping(), timeout)

    async def close(self) -> None:
        await self._channel.close()

    async def _foreign(self, name: str, error: WrongType, timeout: float) -> EngineRefused:
        """The error about a key of another type: most often it is a string, the lock of redis-py."""
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
