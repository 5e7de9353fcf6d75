"""Who waits inside this process. Pure bookkeeping: no clock, no I/O; callers hold the core's lock.

For each name at most one local contender is known to the engine; the others queue here, first come first served. A slot
exists while somebody of this process holds the name or contends for it. When it falls vacant, the head of the queue
either inherits the grant (no round trip) or is told that it is its turn to contend.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable
from typing import Final

from holdfast._core.grant import Grant
from holdfast._core.policy import Policy
from holdfast._runtime.base import Event

#: Hand-overs in a row before the engine must be asked again, so that other processes get their turn.
MAX_HANDOVERS: Final = 16
#: The same bound in time, for critical sections that are not tiny.
MAX_CHAIN_SECONDS: Final = 0.010


class Turn(enum.Enum):
    WAITING = "waiting"
    CONTEND = "contend"  # go and ask the engine
    INHERIT = "inherit"  # the grant is yours
    UNREACHABLE = "unreachable"  # the contender ahead found that the engine cannot be reached
    CLOSED = "closed"  # the client was closed


class LocalWaiter:
    """One caller in the queue of a name."""

    __slots__ = ("caller", "event", "gift", "policy", "since", "turn")

    def __init__(self, caller: object, policy: Policy, event: Event, since: float) -> None:
        self.since = since  #: when it joined
        self.caller = caller  #: who will occupy the slot when the turn comes
        self.policy = policy
        self.event = event
        self.turn = Turn.WAITING
        self.gift: Grant | None = None


def may_hand_on(grant: Grant, receiver: Policy, now: float) -> bool:
    """RULES 5, apart from "nothing was ever sent to release this claim", which the caller knows."""
    return (
        receiver.may_inherit_from(grant.policy)
        and grant.lost is None
        and grant.ttl == grant.claim.ttl
        and grant.next_token <= grant.last_token
        and grant.deadline - now >= grant.ttl / 2
        and now - grant.since <= MAX_CHAIN_SECONDS
    )


class LocalQueue:
    """The slots of one client.

    Each slot names its occupant (an acquisition under way, or the hold that came of it), and giving it up takes that
    name: so an interrupted caller may clean up without knowing how far it had come, and twice does no harm.
    """

    def __init__(self) -> None:
        self._occupants: dict[str, object] = {}
        self._queues: dict[str, deque[LocalWaiter]] = {}  # only of names that somebody waits for

    def occupy(self, key: str, occupant: object) -> bool:
        """Take the slot if it is vacant: then the occupant contends, and must vacate or hand on later."""
        return self._occupants.setdefault(key, occupant) is occupant

    def move_in(self, key: str, old: object, new: object) -> None:
        """The acquisition has become a hold."""
        if self._occupants.get(key) is old:
            self._occupants[key] = new

    def join(self, key: str, waiter: LocalWaiter) -> None:
        """Queue up at an occupied slot."""
        self._queues.setdefault(key, deque()).append(waiter)

    def occupant(self, key: str) -> object | None:
        """The acquisition or hold that has the slot of this name."""
        return self._occupants.get(key)

    def contended(self) -> list[str]:
        """The names that local callers wait for, or have just been given the turn to contend for."""
        turned = [key for key, occupant in self._occupants.items() if getattr(occupant, "turned", None) is not None]
        return [*self._queues, *turned]

    def waiting(self, key: str) -> int:
        return len(self._queues[key]) if key in self._queues else 0

    def heir(self, grant: Grant, occupant: object, now: float) -> LocalWaiter | None:
        """Hand ``grant`` to the head of the queue if the rules allow. The caller rings the heir's event."""
        key = grant.claim.name
        queue = self._queues.get(key)
        if queue is None or self._occupants.get(key) is not occupant or not may_hand_on(grant, queue[0].policy, now):
            return None
        waiter = self._next(key)
        waiter.turn, waiter.gift = Turn.INHERIT, grant
        return waiter

    def vacate(self, key: str, occupant: object) -> LocalWaiter | None:
        """``occupant`` is done. The next in line, if any, takes the slot; the caller rings its event."""
        if self._occupants.get(key) is not occupant:
            return None
        if key not in self._queues:
            del self._occupants[key]
            return None
        waiter = self._next(key)
        waiter.turn = Turn.CONTEND
        return waiter

    def _next(self, key: str) -> LocalWaiter:
        waiter = self._queues[key].popleft()
        self._tidy(key)
        self._occupants[key] = waiter.caller
        return waiter

    def _tidy(self, key: str) -> None:
        if not self._queues[key]:
            del self._queues[key]

    def leave(self, key: str, waiter: LocalWaiter) -> bool:
        """Give up waiting. False if it was this waiter's turn already: then it is for the waiter to pass it on."""
        if waiter.turn is not Turn.WAITING:
            return False
        if waiter in self._queues.get(key, ()):
            self._queues[key].remove(waiter)
            self._tidy(key)
        return True

    def turn_away(self, key: str, before: float) -> list[LocalWaiter]:
        """The engine cannot be reached: take those out of the queue who have waited since ``before`` or longer."""
        queue = self._queues.get(key, ())
        turned = _turned((waiter for waiter in queue if waiter.since <= before), Turn.UNREACHABLE)
        if turned:
            self._queues[key] = deque(waiter for waiter in queue if waiter.since > before)
            self._tidy(key)
        return turned

    def close(self) -> list[LocalWaiter]:
        """Turn everybody away."""
        queues, self._queues = self._queues, {}
        self._occupants = {}
        return [waiter for queue in queues.values() for waiter in _turned(queue, Turn.CLOSED)]


def _turned(queue: Iterable[LocalWaiter], turn: Turn) -> list[LocalWaiter]:
    waiters = list(queue)
    for waiter in waiters:
        waiter.turn = turn
    return waiters
