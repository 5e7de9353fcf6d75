"""The session timeout for a lock with a given ttl. Pure.

A session is a connection, a thread and three descriptors in the client, and counts against ``maxClientCnxns`` on the
server. So ttls share sessions: a ttl below the client's is rounded down to one of ten steps per power of ten. Down,
because a lock must not outlive its dead holder by more than its ttl. A ttl above the client's uses the client's
session, which is also shorter than requested.
"""

from __future__ import annotations

from typing import Final

#: In tenths. Neighbours differ by a quarter at most.
_STEPS: Final = (10, 12, 15, 20, 25, 30, 40, 50, 60, 80)


def session_timeout(ttl: float, longest: float) -> float:
    """The timeout of the session for locks with this ttl, where ``longest`` is the client's. Never above ``ttl``."""
    if ttl >= longest:
        return longest
    milliseconds = int(round(ttl * 1000, 3))
    power: int = 10 ** (len(str(milliseconds)) - 1)
    return max(step * power // 10 for step in _STEPS if step * power // 10 <= milliseconds) / 1000
