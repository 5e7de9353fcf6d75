"""The Redis engine for a client's callers: each operation is one script. Written once, on a channel and a runtime."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from typing import Any, Final

from hiredis import ReplyError

from holdfast._runtime.base import Runtime
from holdfast.engines.base import (
    EXCLUSIVE,
    Busy,
    Claim,
    Found,
    Granted,
    Kind,
    LockState,
    Mode,
    RequestFailed,
    wrong_kind,
)
from holdfast.engines.redis import modes
from holdfast.engines.redis.attempt import RedisAttempt, withdrawal
from holdfast.engines.redis.connections.channel import Channel, answer_of
from holdfast.engines.redis.dialect import grants, leases, operators, permits, rwlocks, transfers
from holdfast.engines.redis.dialect.keys import keys_of, names_of, pattern
from holdfast.engines.redis.dialect.packing import counter_ttl
from holdfast.engines.redis.dialect.replication import unacknowledged
from holdfast.engines.redis.dialect.replies import NotALock, OtherKind, WaitRefused, WrongType
from holdfast.engines.redis.dialect.requests import Call
from holdfast.engines.redis.listener import LockListener
from holdfast.engines.redis.registers import RedisRegisters
from holdfast.engines.redis.waiting.contender import RedisContender
from holdfast.engines.redis.waiting.direct_contender import DirectContender
from holdfast.engines.redis.waiting.seats import Seats
from holdfast.engines.redis.waiting.shared_contender import SharedContender
from holdfast.engines.registers import RegisterKey
from holdfast.errors import EngineRefused

_SCAN_COUNT: Final = 500
_BUSY: Final = Busy()
#: What the scripts of locks reply; others are awaitables.
_REPLIES: Final = frozenset({bytes, int, list, ReplyError})
_encode_release: Final = leases.encode_release_directly
#: The time of a request whose deadline is over (s).
_LEAST: Final = 0.001


class RedisSession:
    """See :class:`holdfast.engines.base.Session`. ``token_ttl`` in seconds; None: fencing counters never expire."""

    attempt = RedisAttempt

    def __init__(self, channel: Channel, runtime: Runtime, token_ttl: float | None) -> None:
        self._channel = channel
        self._runtime = runtime
        self._counter_ttl = counter_ttl(token_ttl)
        encoder = grants.AcquireEncoder(self._counter_ttl)
        self._encode_acquire, self._encode_free = encoder.encode, encoder.encode_free
        self._seats = Seats(channel, runtime, encoder)
        self.contended = self._seats.contended  #: a claim that is going to wait joins the queue with its first request
        self.registers = RedisRegisters(channel, runtime, self._counter_ttl)

    def nested(self, claim: Claim, under: RedisAttempt) -> RedisAttempt:
        attempt = RedisAttempt(claim)
        attempt.under = under
        return attempt

    async def acquire(self, attempt: RedisAttempt, timeout: float) -> Granted | Busy:
        claim = attempt.claim
        is_lock = claim.mode is EXCLUSIVE or modes.is_lock(attempt)
        if is_lock and attempt.waits and attempt.waiter is None and claim.name in self.contended:
            joined = await self._join(attempt, timeout)
            if joined is not None:
                return joined
        if is_lock:
            call = self._encode_acquire(
                claim.name,
                attempt.owner,
                claim.ttl,
                claim.tokens,
                claim.description,
                non_barging=claim.fair or claim.non_barging,
                waiter=attempt.waiter,
                entry=attempt.entry,
                register=None if claim.register is None else self._loaded_with(claim),
            )
        else:
            call = modes.acquire(attempt, self._counter_ttl, self._channel.publish)
        acknowledged = 0
        try:
            if claim.replicas:
                reply, acknowledged = await self._channel.run_acknowledged(call, claim.replicas, timeout)
            else:
                reply = await self._channel.run(call, timeout)
        except (WrongType, OtherKind) as error:
            raise await self._foreign(claim.name, error, timeout, claim.mode.kind) from error
        except WaitRefused as refusal:
            if isinstance(modes.answer(attempt, refusal.reply), Granted):
                await self._unreplicated(attempt, 0, timeout)  # leave nothing behind
            raise
        answer = grants.decode_acquire(reply) if is_lock else modes.answer(attempt, reply)
        if isinstance(answer, Busy):
            if answer.impossible is not None:
                attempt.waiter = None  # the script has removed it
            return answer
        attempt.left_queue()  # the script has removed it
        if acknowledged < claim.replicas:
            raise await self._unreplicated(attempt, acknowledged, timeout)
        return answer

    async def _join(self, attempt: RedisAttempt, timeout: float) -> Granted | Busy | None:
        """Ask, and join the queue in the same request; None: ask in another way."""
        claim = attempt.claim
        if claim.replicas or claim.register is not None:
            return None  # a grant is to be acknowledged, or to read more: the contender joins, once it is busy
        try:
            answer = await self._seats.join(attempt, timeout)
        except (WrongType, OtherKind) as error:
            raise await self._foreign(claim.name, error, timeout, claim.mode.kind) from error
        return _BUSY if isinstance(answer, grants.Joined) else answer

    @staticmethod
    def _loaded_with(claim: Claim) -> RegisterKey | None:
        """The register that one script loads with a grant. (A grant that too few replicas have does not count.)"""
        return claim.register if claim.register is not None and claim.register.durable and not claim.replicas else None

    def acquire_directly(self, name: str, owner: str, description: bytes, ttl: float, timeout: float) -> Any:
        """See :class:`holdfast.engines.base.DirectSession`."""
        keys = keys_of(name).acquire_free
        reply = self._channel.start(keys, self._encode_free(keys, owner, ttl, description), timeout)
        if reply.__class__ is bytes:
            return int(reply)  # as decode_free
        return grants.decode_free(reply) if reply.__class__ in _REPLIES else reply

    def acquired(self, reply: Any) -> int | Busy | None:
        return grants.decode_free(reply)

    def release_directly(self, name: str, owner: str, timeout: float) -> Any:
        channel = self._channel
        keys, packed = _encode_release(keys_of(name), owner, channel.publish, name in self.contended)
        reply = channel.start(keys, packed, timeout)
        return leases.decode_directly(reply) if reply.__class__ in _REPLIES else reply

    def released(self, reply: Any) -> Found | None:
        return leases.decode_directly(reply)

    def acquire_shared_directly(
        self, mode: Mode, name: str, owner: str, description: bytes, ttl: float, timeout: float
    ) -> Any:
        """See :class:`holdfast.engines.optional_sessions.SharedDirectSession`."""
        opening, packed = modes.acquire_directly(
            mode, name, owner, description, ttl, self._counter_ttl, self._channel.publish
        )
        reply = self._channel.start(opening, packed, timeout)
        return self.shared_acquired(mode, reply) if reply.__class__ in _REPLIES else reply

    def shared_acquired(self, mode: Mode, reply: Any) -> int | Granted | Busy | None:
        return permits.decode_directly(reply) if mode.kind is Kind.SEMAPHORE else grants.decode_free(reply)

    def release_shared_directly(self, mode: Mode, name: str, owner: str, timeout: float) -> Any:
        opening, packed = modes.release_directly(mode, name, owner, self._channel.publish)
        reply = self._channel.start(opening, packed, timeout)
        return leases.decode_directly(reply) if reply.__class__ in _REPLIES else reply

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
        if modes.is_lock(attempt):
            return DirectContender(self._channel, self._runtime, attempt, timeout, self._seats)
        return SharedContender(self._channel, self._runtime, attempt, timeout)

    async def release(self, attempt: RedisAttempt, timeout: float) -> Found:
        tombstone = leases.tombstone_for(attempt.claim.ttl) if attempt.unresolved else None
        call = modes.release(attempt, attempt.owner, self._channel.publish, tombstone=tombstone)
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

    async def _renew(self, attempt: RedisAttempt, ttl: float, timeout: float) -> Found | RequestFailed:
        call = modes.renewal([attempt], ttl, self._counter_ttl, always_write=attempt.claim.replicas > 0)
        return await self._renewed(attempt, call, timeout)

    async def _renewed(self, attempt: RedisAttempt, call: Call, timeout: float) -> Found | RequestFailed:
        (answer,) = leases.decode_renew(await answer_of(self._channel, call, attempt.claim.replicas, timeout), 1)
        return answer

    async def resize(self, name: str, size: int, timeout: float, request: str = "") -> None:
        call = permits.encode_resize(name, size, request, self._counter_ttl, self._channel.publish)
        try:
            await self._channel.run(call, timeout)
        except WrongType as error:
            raise await self._foreign(name, error, timeout, Kind.SEMAPHORE) from error

    def watch(self, name: str) -> LockListener:
        return LockListener(self._channel, self._runtime, name)

    # -- for operators ---------------------------------------------------------------------------------------------

    async def inspect(self, name: str, timeout: float) -> LockState:
        try:
            reply = await self._channel.run(operators.encode_inspect(name), timeout)
            conditions = operators.decode_conditions(reply)
            if operators.is_rwlock(reply):
                reply = await self._channel.run(rwlocks.encode_inspect(name), timeout)
                return dataclasses.replace(rwlocks.decode_inspect(name, reply), conditions=conditions)
            if not operators.is_semaphore(reply):
                return dataclasses.replace(operators.decode_inspect(name, reply), conditions=conditions)
        except WrongType as error:
            if isinstance(error, NotALock):
                raise await self._foreign(name, error, timeout) from error
        return permits.decode_inspect(name, await self._ask_semaphore(name, permits.encode_inspect(name), timeout))

    async def _ask_semaphore(self, name: str, call: Call, timeout: float) -> Any:
        try:
            return await self._channel.run(call, timeout)
        except WrongType as error:
            raise await self._foreign(name, error, timeout) from error

    async def names(self, prefix: str, timeout: float) -> AsyncIterator[str]:
        """Names that are held through holdfast, found by what is stored about their holders. Java's locks have nothing
        of it and are not found: their hashes look like any other hash. ``inspect`` shows them nevertheless."""
        seen = set[str]()  # SCAN may return a key more than once
        for server in await self._channel.servers(timeout):
            async for name in scan(server, prefix, timeout):
                if name not in seen:
                    seen.add(name)
                    if await self._is_held(name, timeout):
                        yield name

    async def _is_held(self, name: str, timeout: float) -> bool:
        """Whether ``name`` is held. Metadata may outlive it, and is also that of ``x`` if it is that of ``{x}``."""
        try:
            if operators.decode_held(await self._channel.run(operators.encode_held(name), timeout)):
                return True
            if name.startswith("{") and name.endswith("}"):
                return False  # permits without a count are those of the name without braces
        except NotALock:
            return False
        except WrongType:
            pass  # a string: perhaps a semaphore's
        try:
            return operators.decode_held(await self._channel.command(permits.encode_held(name), timeout))
        except WrongType:
            return False

    async def break_(self, name: str, timeout: float, token: int | None = None) -> bool:
        publish, counter_ttl = self._channel.publish, self._counter_ttl
        try:
            reply = await self._channel.run(operators.encode_break(name, publish, counter_ttl, token=token), timeout)
            if not operators.is_semaphore(reply):
                return operators.decode_break(reply)
        except OtherKind:
            reply = await self._channel.run(rwlocks.encode_break(name, publish, counter_ttl, token), timeout)
            return operators.decode_break(reply)
        except WrongType as error:
            if isinstance(error, NotALock):
                raise await self._foreign(name, error, timeout) from error
        call = permits.encode_break(name, publish, counter_ttl, token)
        return operators.decode_break(await self._ask_semaphore(name, call, timeout))

    async def ping(self, timeout: float) -> None:
        await self._channel.run(operators.encode_ping(), timeout)

    async def close(self) -> None:
        await self._channel.close()

    async def _foreign(
        self, name: str, error: WrongType | OtherKind, timeout: float, wanted: Kind | None = None
    ) -> EngineRefused:
        """The error about a key of another kind or type: most often it is a string, the lock of redis-py. ``wanted``:
        what the caller takes the name for."""
        if isinstance(error, OtherKind):
            return wrong_kind(name, wanted or Kind.LOCK, error.found)
        if isinstance(error, NotALock):
            return EngineRefused(f"{name!r} is not a lock: {error}", name=name)
        try:
            kind = (await self._channel.command(("TYPE", name), timeout)).decode()
            found = await self._kind_found(name, kind, timeout)
        except EngineRefused:
            kind, found = "hash", None  # not allowed to look
        if wanted is not None and found is not None and found is not wanted:
            return wrong_kind(name, wanted, found)
        what = f"a key beside {name!r} holds a value of another type"
        if kind not in ("hash", "none"):
            what = f"key {name!r} holds a {kind}"
        return EngineRefused(f"{what}, probably another lock library's; use namespace=", name=name)

    async def _kind_found(self, name: str, kind: str, timeout: float) -> Kind | None:
        """What the key of Redis' type ``kind`` is, if it is one of ours or Redisson's."""
        if kind == "string" and operators.is_number(await self._channel.command(("GET", name), timeout)):
            return Kind.SEMAPHORE
        if kind == "hash":
            is_rwlock = await self._channel.command(("HEXISTS", name, "mode"), timeout)
            return Kind.RWLOCK if is_rwlock else Kind.LOCK
        return None


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
