"""The life of a hold, as a table.

::

    HELD ──RELEASE──▶ RELEASING ──CONFIRM──▶ RELEASED
     │                 │      └──GIVE_UP──▶ UNKNOWN
     └─────LOSE───────┴──LOSE──▶ LOST

Belief is possible in HELD alone: it ends *before* the first byte of a release leaves. LOST, RELEASED and UNKNOWN are
final: no later answer of the engine brings a hold back (invariant I13, no resurrection).
"""

from __future__ import annotations

import enum
from typing import Final


class State(enum.Enum):
    __hash__ = object.__hash__  # members are singletons; the default hashes their names, in Python

    HELD = "held"
    RELEASING = "releasing"
    RELEASED = "released"
    LOST = "lost"
    UNKNOWN = "unknown"


class Event(enum.Enum):
    __hash__ = object.__hash__

    RELEASE = "release"  # the last handle was released, or the hold is handed on
    CONFIRM = "confirm"  # the engine has released it, or somebody else in the process has taken it over
    GIVE_UP = "give up"  # the engine could not be reached until the deadline
    LOSE = "lose"  # the deadline passed, or the engine says that it is not ours


class _Table(dict[tuple[State, Event], State]):
    """What is not in it cannot happen: it would be a bug in holdfast, and says so."""

    def __missing__(self, step: tuple[State, Event]) -> State:
        state, event = step
        raise RuntimeError(f"internal error in holdfast: {event.value!r} in state {state.value!r}")


#: ``hold.state = NEXT[hold.state, Event.RELEASE]``
NEXT: Final = _Table(
    {
        (State.HELD, Event.RELEASE): State.RELEASING,
        (State.HELD, Event.LOSE): State.LOST,
        (State.RELEASING, Event.CONFIRM): State.RELEASED,
        (State.RELEASING, Event.GIVE_UP): State.UNKNOWN,
        (State.RELEASING, Event.LOSE): State.LOST,
    }
)

FINAL: Final = frozenset({State.RELEASED, State.LOST, State.UNKNOWN})
