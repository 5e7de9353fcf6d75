"""``load.lua``, ``store.lua``, ``look.lua``, ``peek.lua`` and ``swap.lua``: registers; and what their listeners ask.
No I/O."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

from holdfast.engines import registers, waiter_queue
from holdfast.engines.redis.dialect.keys import prefixed
from holdfast.engines.redis.dialect.packing import Argument, milliseconds
from holdfast.engines.redis.dialect.requests import Call, Publish
from holdfast.engines.redis.scripts import LOAD, LOOK, PEEK, STORE, SWAP
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
    join: str | None,
    wake: Collection[str],
    always_write: bool,
) -> Call:
    """``always_write``: also where it is refused as a repeat, for replicas to acknowledge."""
    keys = keys_of(key)
    args: tuple[Argument, ...] = (
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
    )
    return Call(STORE, (keys.register, keys.present, keys.wake, *_listed(key)), (*args, *wake))


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


def encode_peek(key: RegisterKey, token_ttl: int) -> Call:
    keys = keys_of(key)
    return Call(PEEK, (keys.register, keys.present), (_ttl(key, token_ttl),))


def encode_swap(key: RegisterKey, version: int, value: bytes, token_ttl: int, publish: Publish) -> Call:
    keys = keys_of(key)
    return Call(SWAP, (keys.register, keys.present), (version, value, _ttl(key, token_ttl), publish))


def decode_cell(reply: Sequence[Any]) -> Cell:
    """What peek, swap and an accepted load answer."""
    value, queue, version, present = reply
    return Cell(value, queue.decode("utf-8", "replace"), int(version), frozenset([each.decode() for each in present]))


def _stale(reply: Sequence[Any]) -> Stale:
    token, version = reply
    return Stale(int(token), int(version))


def listened_to(key: RegisterKey, waiter: str | None) -> Sequence[Argument]:
    """The plain command that reads what changes with each wake-up of ``waiter``; None: with each change. Its second
    word is the key, which is the channel's name too."""
    keys = keys_of(key)
    if waiter is None:
        return ("HMGET", keys.register, "version")
    return ("GET", keys.wake_up(waiter))
