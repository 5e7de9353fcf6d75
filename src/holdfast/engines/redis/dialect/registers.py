"""``load.lua``, ``store.lua``, ``look.lua``, ``look_all.lua``, ``peek.lua`` and ``swap.lua``: registers; and what their
listeners ask.

``acquire_load.lua`` and ``store_release.lua`` do two steps in one. ``latch_peek.lua`` and ``latch_swap.lua`` share the
count of a latch with Redisson's RCountDownLatch. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from holdfast.engines import registers, waiter_queue
from holdfast.engines.base import Found
from holdfast.engines.redis.dialect import leases
from holdfast.engines.redis.dialect.keys import keys_of as keys_of_lock
from holdfast.engines.redis.dialect.keys import prefixed
from holdfast.engines.redis.dialect.packing import Argument, milliseconds
from holdfast.engines.redis.dialect.requests import Call, Closing, Opening, Publish
from holdfast.engines.redis.scripts import (
    ACQUIRE_LOAD,
    LATCH_PEEK,
    LATCH_SWAP,
    LOAD,
    LOOK,
    LOOK_ALL,
    PEEK,
    STORE,
    STORE_RELEASE,
    SWAP,
)
from holdfast.engines.registers import Cell, Guard, Look, RegisterKey, Stale, Standing

#: A wake-up outlives the time until its waiter looks by itself (ms).
_WAKE_UP_TTL_MS: Final = 10_000
#: Of the waiters before one that could pass a notification on, so many are counted.
_MOST_RANKED: Final = 30

#: Before the text that denotes a queue in which a waiter waits, and no other was notified.
_SAME: Final = b"@"
_STANDINGS: Final = {
    b"": Standing.NOT_QUEUED,
    b"W": Standing.WAITING,
    b"N": Standing.NOTIFIED,
    _SAME: Standing.WAITING,
}


class RegisterKeys:
    """The keys of one register.

    The part is quoted, so that it has neither a colon nor a brace: two registers never share a key, and all their keys
    are in the slot of the lock. The empty part is no register's: its key is the list of those that have waiters.
    """

    __slots__ = ("present", "register", "wake")

    def __init__(self, name: str, part: str) -> None:
        quoted = quote(part, safe="")
        self.register = f"{prefixed('holdfast_register', name)}:{quoted}"  #: hash; and the channel of its changes
        self.present = f"{prefixed('holdfast_register_present', name)}:{quoted}"  #: sorted set, waiter -> until when
        self.wake = f"{prefixed('holdfast_register_wake', name)}:{quoted}"  #: + ":" + waiter: its wake-up, and channel

    def wake_up(self, waiter: str) -> str:
        """The key that changes when ``waiter`` is woken. The store script builds it the same way."""
        return f"{self.wake}:{waiter}"


@lru_cache(maxsize=1024)
def _keys(name: str, part: str) -> RegisterKeys:
    return RegisterKeys(name, part)


def keys_of(key: RegisterKey) -> RegisterKeys:
    return _keys(key.name, key.part)


def keys_in_use(key: RegisterKey) -> tuple[str, ...]:
    """Those that may hold a value of another type."""
    keys = keys_of(key)
    return (keys.register, keys.present, *((key.name,) if key.part == registers.LATCH else ()))


def _ttl(key: RegisterKey, token_ttl: int) -> int:
    """How long the register lasts after its last use, in ms; 0: it never expires."""
    return 0 if key.durable else token_ttl


def _listed(key: RegisterKey) -> tuple[str, ...]:
    """Where the register is listed while it has waiters. One that never expires would need a list that does not either;
    there is only one such part, and inspect looks for it without a list."""
    return () if key.durable else (_keys(key.name, "").register,)


def inspected(name: str) -> tuple[Argument, ...]:
    """What ``inspect.lua`` finds the conditions of a lock by."""
    keys = _keys(name, "")
    return keys.register, keys.present, quote(registers.MONITOR, safe="")


def decode_conditions(queues: Sequence[Any]) -> dict[str, int]:
    """How many waiters each condition has: from the end of the reply of ``inspect.lua``."""
    return waiter_queue.waiting(
        (queue.decode("utf-8", "replace"), frozenset([each.decode("utf-8", "replace") for each in present]))
        for queue, present in zip(queues[::2], queues[1::2], strict=True)
    )


def _presence() -> int:
    return milliseconds(registers.PRESENCE)


def encode_load(key: RegisterKey, guard: Guard, token_ttl: int) -> Call:
    keys = keys_of(key)
    return Call(LOAD, (keys.register, keys.present), (guard.token, guard.owner, _ttl(key, token_ttl)))


def decode_load(reply: Sequence[Any]) -> Cell | Stale:
    return _stale(reply) if len(reply) == 2 else decode_cell(reply)


def encode_store(
    key: RegisterKey,
    guard: Guard,
    version: int,
    token_ttl: int,
    publish: Publish,
    *,
    value: bytes | None,
    queue: str | None,
    join: str | None = None,
    wake: Collection[str],
    always_write: bool = False,
) -> Call:
    """``always_write``: also where it is refused as a repeat, for replicas to acknowledge."""
    args = _store_arguments(key, guard, version, token_ttl, publish, value, queue, join, wake, always_write)
    return Call(STORE, _store_keys(key), args)


@lru_cache(maxsize=1024)
def _store_keys(key: RegisterKey) -> tuple[str, ...]:
    keys = keys_of(key)
    return (keys.register, keys.present, keys.wake, *_listed(key))


def _store_arguments(
    key: RegisterKey,
    guard: Guard,
    version: int,
    token_ttl: int,
    publish: Publish,
    value: bytes | None,
    queue: str | None,
    join: str | None,
    wake: Collection[str],
    always_write: bool,
) -> tuple[Argument, ...]:
    return (
        guard.token,
        guard.owner,
        version,
        _ttl(key, token_ttl),
        1 if always_write else 0,
        value or b"",
        0 if value is None else 1,
        queue or "",
        0 if queue is None else 1,
        join or "",
        _presence(),
        _WAKE_UP_TTL_MS,
        publish,
        *wake,
    )


def encode_store_release(
    key: RegisterKey,
    guard: Guard,
    version: int,
    token_ttl: int,
    publish: Publish,
    *,
    value: bytes | None,
    queue: str | None,
    wake: Collection[str],
    tombstone: float | None,
) -> Call:
    """As ``encode_store``, and then ``leases.encode_release`` of the owner of the guard."""
    lock = keys_of_lock(key.name)
    args: tuple[Argument, ...] = (
        guard.owner,
        lock.channel,
        publish,
        0 if tombstone is None else milliseconds(tombstone),
        *_store_arguments(key, guard, version, token_ttl, publish, value, queue, None, wake, False),
    )
    opening = _store_release_keys(key, len(args))
    return Call(STORE_RELEASE, opening, args, packed=opening.packed + Closing.of(*args).packed)


@lru_cache(maxsize=1024)
def _store_release_keys(key: RegisterKey, arguments: int) -> Opening:
    return Opening.of(STORE_RELEASE, (*keys_of_lock(key.name).release, *_store_keys(key)), arguments)


def decode_store_release(reply: Any) -> Found | Stale | None:
    if reply is None:
        return None
    return leases.decode_release(reply) if reply.__class__ is int else _stale(reply)


@lru_cache(maxsize=1024)
def acquire_load(key: RegisterKey) -> Opening:
    """The keys of ``acquire_load.lua``, without that of a waiter."""
    keys = keys_of(key)
    return Opening.of(ACQUIRE_LOAD, (*keys_of_lock(key.name).acquire, keys.register, keys.present), arguments=7)


def decode_store(reply: Any) -> int | Stale:
    return reply if reply.__class__ is int else _stale(reply)


def encode_look(key: RegisterKey, waiter: str, token_ttl: int, seen: bytes) -> Call:
    """``seen``: which queue the last look has seen, see ``queue_seen``."""
    keys = keys_of(key)
    args: tuple[Argument, ...] = (waiter, _presence(), _ttl(key, token_ttl), _MOST_RANKED, seen)
    return Call(LOOK, (keys.register, keys.present, *_listed(key)), args)


def decode_look(reply: bytes) -> Look:
    standing, rank = _STANDINGS[reply[:1]], reply[1:]
    return Look(standing, int(rank), orphan=True) if rank and reply[:1] != _SAME else Look(standing)


def queue_seen(reply: bytes) -> bytes:
    """Which queue a look has seen, if the same one has the same answer for the same waiter; else empty."""
    return reply[1:] if reply[:1] == _SAME else b""


class SeenQueue(NamedTuple):
    """A queue in which no waiter was notified, and how its waiters stand. ``queued`` denotes it at the server."""

    queued: bytes
    looks: Mapping[str, Look]


NO_QUEUE: Final = SeenQueue(b"", {})


def encode_look_all(key: RegisterKey, waiters: Collection[str], token_ttl: int, seen: SeenQueue) -> Call:
    """``seen``: what an earlier reply has shown, see ``decode_look_all``."""
    keys = keys_of(key)
    args: tuple[Argument, ...] = (_presence(), _ttl(key, token_ttl), seen.queued, *waiters)
    return Call(LOOK_ALL, (keys.register, keys.present, *_listed(key)), args)


def decode_look_all(reply: Any, seen: SeenQueue) -> SeenQueue:
    """How the waiters stand. It may be given to the next request if ``queued`` is not empty. ValueError: the queue is
    not a text of ours."""
    if isinstance(reply, bytes):
        return seen
    queued, queue, present = reply
    return SeenQueue(queued, waiter_queue.looks(queue.decode(), frozenset([each.decode() for each in present])))


def encode_peek(key: RegisterKey, token_ttl: int) -> Call:
    script = LATCH_PEEK if key.part == registers.LATCH else PEEK
    return Call(script, keys_in_use(key), (_ttl(key, token_ttl),))


def encode_swap(key: RegisterKey, version: int, value: bytes, token_ttl: int, publish: Publish) -> Call:
    args: tuple[Argument, ...] = (version, value, _ttl(key, token_ttl), publish)
    if key.part == registers.LATCH:
        return Call(LATCH_SWAP, keys_in_use(key), (*args, latch_channel(key.name)))
    return Call(SWAP, keys_in_use(key), args)


def decode_cell(reply: Sequence[Any]) -> Cell:
    """What peek, swap and an accepted load answer."""
    value, queue, version, present = reply
    return Cell(value, queue.decode("utf-8", "replace"), int(version), frozenset([each.decode() for each in present]))


def _stale(reply: Sequence[Any]) -> Stale:
    token, version = reply
    return Stale(int(token), int(version))


def latch_channel(name: str) -> str:
    """Where Redisson publishes that a latch is open. The braces are added to any name."""
    return f"redisson_countdownlatch__channel__{{{name}}}"


def listened_to(key: RegisterKey, waiter: str | None) -> tuple[Sequence[Argument], str]:
    """The plain command that reads what changes with each wake-up of ``waiter``; None: with each change. And the
    channel on which that is published: the key's name, but of a latch, which Java may change."""
    keys = keys_of(key)
    if waiter is not None:
        return ("GET", keys.wake_up(waiter)), keys.wake_up(waiter)
    if key.part == registers.LATCH:
        return ("GET", key.name), latch_channel(key.name)
    return ("HMGET", keys.register, "version"), keys.register
