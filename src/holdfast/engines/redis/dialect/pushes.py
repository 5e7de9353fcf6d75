"""What a server pushes between replies. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

#: These answer a SUBSCRIBE or UNSUBSCRIBE of one channel, in the order of the requests: in RESP3 they are the replies.
#: Not so ``sunsubscribe``: the server also pushes it when the channel's slot has moved to another node.
CONFIRMATIONS: Final = frozenset({b"subscribe", b"ssubscribe", b"unsubscribe"})
UNSUBSCRIBED: Final = b"sunsubscribe"


def subjects(push: Sequence[Any]) -> Sequence[bytes] | None:
    """What a push is about: keys that were invalidated, or a channel. None: every key (FLUSHALL)."""
    if push[0] == b"invalidate":
        keys: Sequence[bytes] | None = push[1]
        return keys
    if push[0] in (b"message", b"smessage", UNSUBSCRIBED):
        return (push[1],)
    return ()
