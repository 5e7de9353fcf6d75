"""The registers of a Redis server or cluster: each operation is one script. Written once, for all runtimes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from holdfast._runtime.base import Runtime
from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.connections.channel import Channel
from holdfast.engines.redis.dialect import registers as dialect
from holdfast.engines.redis.dialect.replication import unacknowledged
from holdfast.engines.redis.dialect.replies import WrongType
from holdfast.engines.redis.dialect.requests import Call
from holdfast.engines.registers import Cell, Guard, Look, RegisterKey, Stale
from holdfast.errors import EngineRefused

#: So many waiters are remembered.
_MOST_SEEN: Final = 10_000
#: How long a listener's request may take (s).
_TIMEOUT: Final = 1.0
#: A thousand waiters look every two seconds. Those of one event loop return a little earlier, together: then their
#: looks are sent and answered together (s). Shorter waits are not changed.
_TOGETHER: Final = 0.1
_TOGETHER_FROM: Final = 1.0
#: A listener that cannot arm returns after this long: its waiter looks for itself (s).
_LOOK_YOURSELF: Final = 0.5


class RedisRegisters:
    """See :class:`holdfast.engines.registers.Registers`. ``token_ttl`` in ms; 0: registers never expire."""

    def __init__(self, channel: Channel, runtime: Runtime, token_ttl: int) -> None:
        self._channel = channel
        self._runtime = runtime
        self._token_ttl = token_ttl
        self._seen: dict[tuple[RegisterKey, str], bytes] = {}  # which queue each waiter has looked at last

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

    async def peek(self, key: RegisterKey, timeout: float) -> Cell:
        return dialect.decode_cell(await self._run(key, dialect.encode_peek(key, self._token_ttl), timeout))

    async def swap(self, key: RegisterKey, version: int, value: bytes, timeout: float) -> Cell:
        call = dialect.encode_swap(key, version, value, self._token_ttl, self._channel.publish)
        return dialect.decode_cell(await self._run(key, call, timeout))

    def listener(self, key: RegisterKey, waiter: str | None) -> RedisListener:
        return RedisListener(self._channel, self._runtime, key, waiter)

    async def _run(self, key: RegisterKey, call: Call, timeout: float, replicas: int = 0) -> Any:
        try:
            if not replicas:
                return await self._channel.run(call, timeout)
            reply, acknowledged = await self._channel.run_acknowledged(call, replicas, timeout)
        except WrongType as error:
            keys = " or ".join(repr(each) for each in call.keys[:2])
            raise EngineRefused(
                f"{keys} holds a value of another type, probably another program's; remove it, or use namespace=",
                name=key.name,
            ) from error
        if acknowledged < replicas:
            raise unacknowledged(acknowledged, replicas)
        return reply


class RedisListener:
    """See :class:`holdfast.engines.registers.Listener`.

    A push ends the tracking of its key. It is tracked again when the next wait begins: nearly always the waiter goes to
    its lock instead. Another value than the last one that was read is a wake-up.
    """

    def __init__(self, channel: Channel, runtime: Runtime, key: RegisterKey, waiter: str | None) -> None:
        self._runtime = runtime
        self._words = dialect.listened_to(key, waiter)
        self._watch = channel.watch()
        self._armed = False
        self._read: Any = None

    async def arm(self) -> None:
        await self._arm(_TIMEOUT)

    async def wait(self, until: float) -> None:
        if not self._armed:
            before, now = self._read, self._runtime.now()
            if now >= until:
                return
            try:
                await self._arm(min(until - now, _TIMEOUT))
            except (RequestFailed, EngineRefused):
                await self._runtime.sleep_until(min(until, now + _LOOK_YOURSELF))
                return
            if self._read != before:
                return
        if until - self._runtime.now() > _TOGETHER_FROM:
            until -= until % _TOGETHER
        if await self._watch.pushed(until):
            self._armed = False

    async def _arm(self, timeout: float) -> None:
        self._read = await self._watch.arm_reading(self._words, str(self._words[1]), timeout)
        self._armed = True

    def close(self) -> None:
        self._watch.close()
