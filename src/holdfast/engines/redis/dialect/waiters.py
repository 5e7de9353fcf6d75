"""``enqueue.lua`` and ``leave.lua``: the queue of waiters. No I/O."""

from __future__ import annotations

import os
from typing import Any, Final, NamedTuple

from holdfast.engines.base import Kind, Mode
from holdfast.engines.redis.dialect.keys import keys_of
from holdfast.engines.redis.dialect.packing import Argument, milliseconds
from holdfast.engines.redis.dialect.requests import Call
from holdfast.engines.redis.scripts import ENQUEUE, LEAVE

#: A waiter that has not looked for this long is taken for dead. A live one looks twice a second, and each look at least
#: half a second after the last refresh is a refresh: so it may be late by a second before it loses its place.
_WAITER_TTL_MS: Final = 2000
QUEUE_TTL_MS: Final = 2 * _WAITER_TTL_MS
_EXPIRED: Final = -1


#: A lease that is handed over to a waiter lasts this long (s), or as long as the claim's ttl, until it is confirmed: so
#: much does a waiter cost that was frozen or has died.
_HANDED_OVER: Final = 2.0


def seat_at(waiter: str, wire: str, ttl: float, since: float) -> str:
    """The beginning of an entry in the queue: of a waiter that a release may push to. ``wire``: where, see turn.lua.
    ``since``: by the wall clock, for people."""
    return f"{waiter} {wire} {milliseconds(handed_over_for(ttl))} {since:.6f}"


def handed_over_for(ttl: float) -> float:
    """How long a lease lasts that was handed over, from when it was (s)."""
    return min(ttl, _HANDED_OVER)


class Position(NamedTuple):
    """A waiter's place in the queue. ``queued`` False: its key expired, it must join under a new id. ``ahead``: the
    live waiter to watch; None: watch the lock itself."""

    queued: bool
    ahead: str | None


def new_waiter(mode: Mode) -> str:
    """A new id in the queue. It shows whether the claim is to read or to write a read-write lock."""
    prefix = "" if mode.kind is not Kind.RWLOCK else "r" if mode.shared else "w"
    return prefix + os.urandom(8).hex()


def encode_enqueue(
    name: str, waiter: str, *, front: int, about: bytes | None, reader: bool = False, entry: bytes | None = None
) -> Call:
    """Find the place of ``waiter``. ``about`` (owner and description, see ``metadata.waiter_about``): join the queue if
    it is not there; None: only look. ``front``: how many at the head of the queue watch the lock itself. ``reader``: it
    passes over other readers, to the next writer. ``entry``: what it has joined the queue with before."""
    keys = keys_of(name)
    joins, reads = 0 if about is None else 1, 1 if reader else 0
    args: tuple[Argument, ...] = (waiter, _WAITER_TTL_MS, QUEUE_TTL_MS, joins, front, about or b"", reads)
    if entry is not None:
        args += (entry,)
    return Call(ENQUEUE, (keys.queue, keys.waiter(waiter)), args)


def decode_enqueue(reply: Any) -> Position:
    return Position(reply != _EXPIRED, reply.decode() if isinstance(reply, bytes) else None)


def encode_leave(name: str, waiter: str) -> Call:
    """Remove ``waiter`` from the queue. Its reply needs no decoder: afterwards the waiter is not there, in any case."""
    keys = keys_of(name)
    return Call(LEAVE, (keys.queue, keys.waiter(waiter)), (waiter,))
