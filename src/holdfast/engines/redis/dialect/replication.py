"""What is sent with a request on the same connection, ASKING before and WAIT after it, and the replies. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import hiredis

from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.dialect import replies
from holdfast.engines.redis.dialect.packing import pack

_ASKING: Final = pack(("ASKING",))
#: A server looks at its clock ten times a second: WAIT may take this much longer than its timeout (s).
_LATE: Final = 0.15


def wait_for_replicas(replicas: int, timeout: float) -> bytes:
    """WAIT: how many replicas have all that this connection wrote so far. A little shorter than the request may take,
    so that the answer "too few" still arrives."""
    seconds = max(timeout - max(timeout / 5, _LATE), timeout / 3)
    return pack(("WAIT", replicas, max(1, int(seconds * 1000))))


def around(packed: bytes, replicas: int, timeout: float, *, asking: bool) -> list[bytes]:
    """A request, with ASKING before it and WAIT after it where they are needed."""
    before = [_ASKING] if asking else []
    return [*before, packed, wait_for_replicas(replicas, timeout)] if replicas else [*before, packed]


def acknowledged(answers: Sequence[Any], replicas: int) -> tuple[Any, int]:
    """What came back for ``around``: the reply, if it is not an error, and how many replicas have it."""
    if not replicas:
        return replies.checked(answers[-1]), 0
    reply, count = replies.checked(answers[-2]), answers[-1]
    if count.__class__ is hiredis.ReplyError:
        error = replies.error(str(count))
        if isinstance(error, RequestFailed):
            # The server was demoted during the WAIT: the replicas that follow it now do not have our write from it.
            return reply, 0
        raise replies.WaitRefused(str(error), reply)
    return reply, count


def unacknowledged(found: int, needed: int) -> RequestFailed:
    return RequestFailed(
        f"only {found} of {needed} replicas acknowledged in time; see replicas= and the replication link",
        may_have_happened=True,
    )
