"""The registers of a Redis server or cluster: each operation is one script. Written once, for all runtimes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from holdfast._runtime.base import Runtime
from holdfast.engines.base import Found
from holdfast.engines.redis.attempt import RedisAttempt
from holdfast.engines.redis.connections.channel import Channel
from holdfast.engines.redis.dialect import registers as dialect
from holdfast.engines.redis.dialect.leases import tombstone_for
from holdfast.engines.redis.dialect.replication import unacknowledged
from holdfast.engines.redis.dialect.replies import WrongType
from holdfast.engines.redis.dialect.requests import Call
from holdfast.engines.redis.listener import RedisListener
from holdfast.engines.registers import Cell, Guard, Look, RegisterKey, Stale
from holdfast.errors import EngineRefused

#: So many waiters are remembered.
_MOST_SEEN: Final = 10_000
#: So many queues are remembered.
_MOST_QUEUES: Final = 1_000


class RedisRegisters:
    """See :class:`holdfast.engines.registers.Registers`. ``token_ttl`` in ms; 0: registers never expire."""

    fused = True

    def __init__(self, channel: Channel, runtime: Runtime, token_ttl: int) -> None:
        self._channel = channel
        self._runtime = runtime
        self._token_ttl = token_ttl
        self._seen: dict[tuple[RegisterKey, str], bytes] = {}  # which queue each waiter has looked at last
        self._queues: dict[RegisterKey, dialect.SeenQueue] = {}  # what the last look for several waiters has shown

    async def load(self, key: RegisterKey, guard: Guard, timeout: float) -> Cell | Stale:
        return dialect.decode_load(await self._run(key, dialect.encode_load(key, guard, self._token_ttl), timeout))

    async def store(
        self,
        key: RegisterKey,
        guard: Guard,
        version: int,
        timeout: float,
        *,
        value: bytes | None = None,
        queue: str | None = None,
        join: str | None = None,
        wake: Collection[str] = (),
        replicas: int = 0,
    ) -> int | Stale:
        call = dialect.encode_store(
            key,
            guard,
            version,
            self._token_ttl,
            self._channel.publish,
            value=value,
            queue=queue,
            join=join,
            wake=wake,
            always_write=replicas > 0,
        )
        return dialect.decode_store(await self._run(key, call, timeout, replicas))

    async def store_and_release(
        self,
        attempt: RedisAttempt,
        key: RegisterKey,
        guard: Guard,
        version: int,
        timeout: float,
        *,
        value: bytes | None = None,
        queue: str | None = None,
        wake: Collection[str] = (),
    ) -> Found | Stale | None:
        call = dialect.encode_store_release(
            key,
            guard,
            version,
            self._token_ttl,
            self._channel.publish,
            value=value,
            queue=queue,
            wake=wake,
            tombstone=tombstone_for(attempt.claim.ttl) if attempt.unresolved else None,
        )
        return dialect.decode_store_release(await self._run(key, call, timeout))

    async def look(self, key: RegisterKey, waiter: str, timeout: float) -> Look:
        seen = self._seen.get((key, waiter), b"")
        reply = await self._run(key, dialect.encode_look(key, waiter, self._token_ttl, seen), timeout)
        self._remember(key, waiter, dialect.queue_seen(reply))
        return dialect.decode_look(reply)

    def _remember(self, key: RegisterKey, waiter: str, seen: bytes) -> None:
        if not seen:
            self._seen.pop((key, waiter), None)
            return
        if len(self._seen) >= _MOST_SEEN:
            self._seen.clear()  # of waiters that were given up, most of them; the others are asked about once more
        self._seen[key, waiter] = seen

    async def look_all(self, key: RegisterKey, waiters: Collection[str], timeout: float) -> Mapping[str, Look]:
        if len(waiters) == 1:
            (waiter,) = waiters
            return {waiter: await self.look(key, waiter, timeout)}  # it is not sent the whole queue
        seen = self._queues.get(key, dialect.NO_QUEUE)
        reply = await self._run(key, dialect.encode_look_all(key, waiters, self._token_ttl, seen), timeout)
        try:
            found = dialect.decode_look_all(reply, seen)
        except ValueError as error:
            raise EngineRefused(f"the queue of {key.part} of {key.name!r} was not written by holdfast") from error
        if found.queued and found is not seen:
            if len(self._queues) >= _MOST_QUEUES:
                self._queues.clear()  # of registers that have no waiters any more, most of them
            self._queues[key] = found
        return found.looks

    async def peek(self, key: RegisterKey, timeout: float) -> Cell:
        return dialect.decode_cell(await self._run(key, dialect.encode_peek(key, self._token_ttl), timeout))

    async def swap(self, key: RegisterKey, version: int, value: bytes, timeout: float) -> Cell:
        call = dialect.encode_swap(key, version, value, self._token_ttl, self._channel.publish)
        return dialect.decode_cell(await self._run(key, call, timeout))

    def listener(self, key: RegisterKey, waiter: str | None) -> RedisListener:
        words, subject = dialect.listened_to(key, waiter)
        return RedisListener(self._channel, self._runtime, words, subject)

    async def _run(self, key: RegisterKey, call: Call, timeout: float, replicas: int = 0) -> Any:
        try:
            if not replicas:
                return await self._channel.run(call, timeout)
            reply, acknowledged = await self._channel.run_acknowledged(call, replicas, timeout)
        except WrongType as error:
            named = " or ".join(map(repr, dialect.keys_in_use(key)))
            raise EngineRefused(
                f"{named} holds a value of another type, probably another program's; remove it, or use namespace=",
                name=key.name,
            ) from error
        if acknowledged < replicas:
            raise unacknowledged(acknowledged, replicas)
        return reply
