"""The life of a hold: its states, its events, and the only place where one follows from the other.

::

    REQUESTED ──GRANT──▶ HELD
     └──GIVE_UP──▶ UNKNOWN
    HELD ──RELEASE──▶ RELEASING ──CONFIRM──▶ RELEASED
     │                 │      └──GIVE_UP──▶ UNKNOWN
     └─────LOSE───────┴──LOSE──▶ LOST
    HELD ──PARK──▶ PARKED ──RESUME──▶ HELD
                    └──CONFIRM──▶ RELEASED, LOSE ──▶ LOST

REQUESTED: it is made before its claim is granted (direct_hold.py); others begin as HELD.
A hold counts as held in HELD alone: that ends *before* the first byte of a release leaves. LOST, RELEASED and UNKNOWN
are final: no later answer of the engine brings a hold back (invariant I13, no resurrection). PARKED: its caller waits
for a condition; the lock was given up, and RESUME brings a new grant with a new token into the same hold.
"""

from __future__ import annotations

import enum
from typing import Final


class State(enum.Enum):
    __hash__ = object.__hash__  # members are singletons; the default hashes their names, in Python

    REQUESTED = "requested"
    HELD = "held"
    PARKED = "parked"
    RELEASING = "releasing"
    RELEASED = "released"
    LOST = "lost"
    UNKNOWN = "unknown"


class Event(enum.Enum):
    __hash__ = object.__hash__

    GRANT = "grant"  # the engine has granted what was requested, in time
    PARK = "park"  # the lock is given up until a condition is notified
    RESUME = "resume"  # it was granted again
    RELEASE = "release"  # the last handle was released, or the hold is handed over
    CONFIRM = "confirm"  # the engine has released it, another caller of the process has it, or a wait was given up
    GIVE_UP = "give up"  # the engine could not be reached until the deadline, or the caller was interrupted
    LOSE = "lose"  # the deadline passed, the engine reports that it is not ours, or this is a forked child


class _Table(dict[tuple[State, Event], State]):
    """What is not in it cannot happen: it would be a bug in holdfast, and raises."""

    def __missing__(self, step: tuple[State, Event]) -> State:
        state, event = step
        raise RuntimeError(f"internal error in holdfast: {event.value!r} in state {state.value!r}")


NEXT: Final = _Table(
    {
        (State.REQUESTED, Event.GRANT): State.HELD,
        (State.REQUESTED, Event.GIVE_UP): State.UNKNOWN,
        (State.HELD, Event.RELEASE): State.RELEASING,
        (State.HELD, Event.LOSE): State.LOST,
        (State.HELD, Event.PARK): State.PARKED,
        (State.PARKED, Event.RESUME): State.HELD,
        (State.PARKED, Event.CONFIRM): State.RELEASED,
        (State.PARKED, Event.LOSE): State.LOST,
        (State.RELEASING, Event.CONFIRM): State.RELEASED,
        (State.RELEASING, Event.GIVE_UP): State.UNKNOWN,
        (State.RELEASING, Event.LOSE): State.LOST,
    }
)

FINAL: Final = frozenset({State.RELEASED, State.LOST, State.UNKNOWN})


# Before Python 3.12, a member that is looked up in its class costs 0.1 µs; a name of a module, nearly nothing.
REQUESTED: Final = State.REQUESTED
HELD: Final = State.HELD
PARKED: Final = State.PARKED
RELEASING: Final = State.RELEASING
LOST: Final = State.LOST
GRANT: Final = Event.GRANT
PARK: Final = Event.PARK
RESUME: Final = Event.RESUME
RELEASE: Final = Event.RELEASE
CONFIRM: Final = Event.CONFIRM
GIVE_UP: Final = Event.GIVE_UP
LOSE: Final = Event.LOSE

#: A hold begins here, unless it is made before its claim is granted: that begins as REQUESTED.
START: Final = HELD
#: The steps of a usual acquire and release, which know the state before: to look them up costs as much as a lock.
AFTER_GRANT: Final = NEXT[REQUESTED, GRANT]
AFTER_RELEASE: Final = NEXT[HELD, RELEASE]
AFTER_CONFIRM: Final = NEXT[AFTER_RELEASE, CONFIRM]


class Life:
    """What has a state: the base of Hold. Only ``advance`` assigns another one than the first, and the usual acquire
    and release, which assign ``AFTER_GRANT``, ``AFTER_RELEASE`` and ``AFTER_CONFIRM``."""

    __slots__ = ("state",)
    state: State

    def advance(self, event: Event) -> None:
        """One step. The caller holds the core's lock, except in a forked child, which has one thread."""
        self.state = NEXT[self.state, event]
