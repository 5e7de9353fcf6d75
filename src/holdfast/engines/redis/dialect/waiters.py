"""``enqueue.lua`` and ``leave.lua``: the queue of waiters. No I/O."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from holdfast.engines.redis.dialect.keys import keys_of
from holdfast.engines.redis.dialect.requests import Call
from holdfast.engines.redis.scripts import ENQUEUE, LEAVE

#: A waiter that has not looked for this long is taken for dead. A waiter looks at least once a second.
_WAITER_TTL_MS: Final = 5000
_QUEUE_TTL_MS: Final = 2 * _WAITER_TTL_MS
_EXPIRED: Final = -1


class Position(NamedTuple):
    """A waiter's place in the queue. ``queued`` False: its key expired, it must join under a new id. ``ahead``: the
    live waiter to watch; None: watch the lock itself."""

    queued: bool
    ahead: str | None


def encode_enqueue(name: str, waiter: str, *, front: int, about: bytes | None) -> Call:
    """Find the place of ``waiter``. ``about`` (owner and description, see ``metadata.waiter_about``): join the queue if
    it is not there; None: only look. ``front``: how many at the head of the queue watch the lock itself."""
    keys = keys_of(name)
    args = (waiter, _WAITER_TTL_MS, _QUEUE_TTL_MS, 0 if about is None else 1, front, about or b"")
    return Call(ENQUEUE, (keys.queue, keys.waiter(waiter)), args)


def decode_enqueue(reply: Any) -> Position:
    return Position(reply != _EXPIRED, reply.decode() if isinstance(reply, bytes) else None)


def encode_leave(name: str, waiter: str) -> Call:
    """Remove ``waiter`` from the queue. Its reply needs no decoder: afterwards the waiter is not there, in any case."""
    keys = keys_of(name)
    return Call(LEAVE, (keys.queue, keys.waiter(waiter)), (waiter,))
