"""What a server pushes between replies. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

#: These answer a SUBSCRIBE or UNSUBSCRIBE of one channel, in the order of the requests: in RESP3 they are the replies.
CONFIRMATIONS: Final = frozenset({b"subscribe", b"unsubscribe"})


def words(push: Sequence[Any]) -> Sequence[bytes] | None:
    """The keys that were invalidated, or the channel that spoke. None: every key (FLUSHALL)."""
    if push[0] == b"invalidate":
        keys: Sequence[bytes] | None = push[1]
        return keys
    if push[0] == b"message":
        return (push[1],)
    return ()
