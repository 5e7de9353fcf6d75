"""``inspect.lua``, ``held.lua``, ``break.lua`` and ``ping.lua``: what operators ask for. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from holdfast.engines.base import MOST_WAITERS, LockState
from holdfast.engines.redis.dialect import metadata, registers
from holdfast.engines.redis.dialect.keys import keys_of
from holdfast.engines.redis.dialect.packing import Argument, milliseconds
from holdfast.engines.redis.dialect.requests import Call, Publish
from holdfast.engines.redis.scripts import BREAK, HELD, INSPECT, PING

_PING: Final = Call(PING, (), ())


def encode_inspect(name: str) -> Call:
    keys = keys_of(name)
    args = (MOST_WAITERS, keys.redisson_queue, keys.timeouts, *registers.inspected(name))
    return Call(INSPECT, keys.inspect, args)


def decode_inspect(name: str, reply: Sequence[Any]) -> LockState:
    return metadata.lock_state(name, reply)


def decode_conditions(reply: Sequence[Any]) -> dict[str, int]:
    """Of the same reply only how many waiters each condition has."""
    return registers.decode_conditions(reply[10])


def decode_inspect_blocks(reply: Sequence[Any]) -> dict[str, metadata.Block | None]:
    """Of the same reply only the owners, each with the block of tokens that it was granted, if that is known."""
    return metadata.blocks(reply)


def encode_held(name: str) -> Call:
    return Call(HELD, (name,), ())


def decode_held(reply: Any) -> bool:
    return bool(reply)


def encode_break(
    name: str,
    publish: Publish,
    counter_ttl: int,
    *,
    token: int | None = None,
    owner: str | None = None,
    tombstone: float | None = None,
) -> Call:
    """Take the lock from its holder; only from one with ``token`` in its block, or only from ``owner``. ``tombstone``:
    seconds for which the holder must not join again, where it is one of several servers."""
    keys = keys_of(name)
    args: tuple[Argument, ...] = (
        keys.channel,
        publish,
        counter_ttl,
        "" if token is None else str(token),
        "" if owner is None else owner,
        keys.timeouts,
    )
    if tombstone is None:
        return Call(BREAK, keys.raise_, args)
    return Call(BREAK, keys.join, (*args, milliseconds(tombstone)))


def decode_break(reply: Any) -> bool:
    """Whether the lock was held, and is broken."""
    return bool(reply == 1)


def is_semaphore(reply: Any) -> bool:
    """Whether ``break.lua`` or ``inspect.lua`` found no lock, but permits of a semaphore that are out."""
    return bool(reply[9] == 1) if isinstance(reply, list) else bool(reply == -1)


def is_rwlock(reply: Sequence[Any]) -> bool:
    """Whether ``inspect.lua`` found a read-write lock."""
    return b"mode" in reply[0][::2]


def is_number(value: Any) -> bool:
    """Whether a string is one as a semaphore has it."""
    return metadata.number(value.removeprefix(b"-") if isinstance(value, bytes) else None) is not None


def encode_ping() -> Call:
    return _PING


def decode_ping(reply: Sequence[bytes]) -> int:
    """The server's time, in microseconds."""
    seconds, micros = reply
    return int(seconds) * 1_000_000 + int(micros)
