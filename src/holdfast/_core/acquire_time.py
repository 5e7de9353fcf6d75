"""How long the requests of an acquire with a timeout may take. Pure: callers pass the clock's readings in.

``most``: how long a request may take in any case. ``timeout``: the caller's, 0 for one try; ``deadline``: when it ends.
"""

from __future__ import annotations

from typing import Final

#: An acquire with a timeout may take this much longer, for the answer to a last request and for leaving its queue.
_GRACE: Final = 0.09
#: Of it, what the last request may take.
_LAST_LOOK: Final = 0.05
#: The last look at a busy lock is so much before the deadline, but no more than a quarter of the timeout (s): if the
#: server is slow to answer it, the lock is busy all the same, and not unreachable.
_LOOK_AHEAD: Final = 0.25
#: A request about a place in the queue gets at least this long.
_SHORTEST_LEAVE: Final = 0.02


def request_timeout(most: float, timeout: float | None, deadline: float | None, now: float) -> float:
    """Half of what is left: a reply lost in a black hole must leave time to ask again. The last look has all of it."""
    if not timeout or deadline is None:
        return most
    if is_last(timeout, deadline, now):
        return min(most, max(deadline - now, 0.0) + _LAST_LOOK)
    return min(most, max((deadline - now) / 2, _LAST_LOOK))


def last_look(timeout: float, deadline: float) -> float:
    """When to look at a busy lock for the last time, unless something happens to it after that."""
    return deadline - min(timeout / 4, _LOOK_AHEAD)


def is_last(timeout: float | None, deadline: float | None, sent: float) -> bool:
    """Whether a look that is sent at ``sent`` is the last one."""
    return deadline is not None and sent >= last_look(timeout or 0.0, deadline)


def next_look(latest: float, timeout: float | None, deadline: float | None, sent: float) -> float:
    """Until when to wait after the answer to a look that was sent at ``sent``: for the next look, or for the end."""
    if deadline is None:
        return latest
    return min(latest, deadline if is_last(timeout, deadline, sent) else last_look(timeout or 0.0, deadline))


def time_to_leave(most: float, timeout: float | None, deadline: float | None, now: float) -> float:
    """How long leaving the queue may take, after the caller has given up."""
    if not timeout or deadline is None:
        return most
    return min(most, max(deadline + _GRACE - now, _SHORTEST_LEAVE))


def long_enough_for_an_answer(most: float, timeout: float | None) -> float:
    """After how long without an answer this caller would take the engine for unreachable."""
    return min(most, max((timeout or 0.0) / 2, _LAST_LOOK))
