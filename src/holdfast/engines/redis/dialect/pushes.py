"""What a server pushes between replies. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from holdfast.engines.redis.dialect.keys import WAKE

#: These answer a SUBSCRIBE or UNSUBSCRIBE of one channel, in the order of the requests: in RESP3 they are the replies.
#: Not so ``sunsubscribe``: the server also pushes it when the channel's slot has moved to another node.
CONFIRMATIONS: Final = frozenset({b"subscribe", b"ssubscribe", b"unsubscribe"})
UNSUBSCRIBED: Final = b"sunsubscribe"


_MESSAGES: Final = frozenset({b"message", b"smessage"})
_WAKE: Final = WAKE.encode()


class Handed(NamedTuple):
    """What a release has pushed to a waiter: the token of the lock; None: that it should look. ``waiter``: its id in
    the queue, and its owner, separated by a space."""

    waiter: bytes
    token: int | None


def handed(push: Sequence[Any]) -> Handed | None:
    """What a push says to one waiter; None: it is about something else."""
    if push[0] not in _MESSAGES or not push[1].startswith(_WAKE):
        return None
    waiter, _, token = push[2].rpartition(b" ")
    return Handed(waiter, int(token) if token.isdigit() else None)


def unsubscribed(push: Sequence[Any]) -> bytes | None:
    """The channel of a connection's own that the server has removed, since its slot has moved."""
    return push[1] if push[0] == UNSUBSCRIBED and push[1].startswith(_WAKE) else None


def subjects(push: Sequence[Any]) -> Sequence[bytes] | None:
    """What a push is about: keys that were invalidated, or a channel. None: every key (FLUSHALL)."""
    if push[0] == b"invalidate":
        keys: Sequence[bytes] | None = push[1]
        return keys
    if push[0] in (b"message", b"smessage", UNSUBSCRIBED):
        return (push[1],)
    return ()
