"""The life of a hold: its states, its events, and the only place where one follows from the other.

::

    HELD ──RELEASE──▶ RELEASING ──CONFIRM──▶ RELEASED
     │                 │      └──GIVE_UP──▶ UNKNOWN
     └─────LOSE───────┴──LOSE──▶ LOST

A hold counts as held in HELD alone: that ends *before* the first byte of a release leaves. LOST, RELEASED and UNKNOWN
are final: no later answer of the engine brings a hold back (invariant I13, no resurrection).
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

    RELEASE = "release"  # the last handle was released, or the hold is handed over
    CONFIRM = "confirm"  # the engine has released it, or another caller of the process has taken it over
    GIVE_UP = "give up"  # the engine could not be reached until the deadline
    LOSE = "lose"  # the deadline passed, the engine reports that it is not ours, or this is a forked child


class _Table(dict[tuple[State, Event], State]):
    """What is not in it cannot happen: it would be a bug in holdfast, and raises."""

    def __missing__(self, step: tuple[State, Event]) -> State:
        state, event = step
        raise RuntimeError(f"internal error in holdfast: {event.value!r} in state {state.value!r}")


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


# Before Python 3.12, a member that is looked up in its class costs 0.1 µs; a name of a module, nearly nothing.
HELD: Final = State.HELD
RELEASING: Final = State.RELEASING
LOST: Final = State.LOST
RELEASE: Final = Event.RELEASE
CONFIRM: Final = Event.CONFIRM
GIVE_UP: Final = Event.GIVE_UP
LOSE: Final = Event.LOSE

#: Every hold begins here.
START: Final = HELD


class Life:
    """What has a state: the base of Hold, which begins with ``START``. Only ``advance`` assigns another one."""

    __slots__ = ("state",)
    state: State

    def advance(self, event: Event) -> None:
        """One step. The caller holds the core's lock, except in a forked child, which has one thread."""
        self.state = NEXT[self.state, event]
