"""Who waits inside this process. Pure bookkeeping: no clock, no I/O; callers hold the core's lock.

For each name at most one local contender is known to the engine; the others queue here, first come first served. A slot
exists while somebody of this process holds the name or contends for it. When it falls vacant, the head of the queue
either inherits the grant (no round trip) or is told that it is its turn to contend.
"""

from __future__ import annotations

import enum
from collections import deque
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

    __slots__ = ("caller", "event", "gift", "policy", "turn")

    def __init__(self, caller: object, policy: Policy, event: Event) -> None:
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


class _Slot:
    __slots__ = ("occupant", "queue")

    def __init__(self, occupant: object) -> None:
        self.occupant = occupant  #: an acquisition under way, or the hold that came of it
        self.queue: deque[LocalWaiter] = deque()


class LocalQueue:
    """The slots of one client.

    Each slot names its occupant, and giving it up takes that name: so an interrupted caller may clean up without
    knowing how far it had come, and doing it twice does no harm.
    """

    def __init__(self) -> None:
        self._slots: dict[str, _Slot] = {}

    def occupy(self, key: str, occupant: object) -> bool:
        """Take the slot if it is vacant: then the occupant contends, and must vacate or hand on later."""
        if key in self._slots:
            return False
        self._slots[key] = _Slot(occupant)
        return True

    def move_in(self, key: str, old: object, new: object) -> None:
        """The acquisition has become a hold."""
        slot = self._slots.get(key)
        if slot is not None and slot.occupant is old:
            slot.occupant = new

    def join(self, key: str, waiter: LocalWaiter) -> None:
        """Queue up at an occupied slot."""
        self._slots[key].queue.append(waiter)

    def waiting(self, key: str) -> int:
        slot = self._slots.get(key)
        return 0 if slot is None else len(slot.queue)

    def heir(self, grant: Grant, occupant: object, now: float) -> LocalWaiter | None:
        """Hand ``grant`` to the head of the queue if the rules allow. The caller rings the heir's event."""
        slot = self._slots.get(grant.claim.name)
        if slot is None or slot.occupant is not occupant or not slot.queue:
            return None
        if not may_hand_on(grant, slot.queue[0].policy, now):
            return None
        waiter = slot.queue.popleft()
        waiter.turn, waiter.gift = Turn.INHERIT, grant
        slot.occupant = waiter.caller
        return waiter

    def vacate(self, key: str, occupant: object) -> LocalWaiter | None:
        """``occupant`` is done. The next in line, if any, takes the slot; the caller rings its event."""
        slot = self._slots.get(key)
        if slot is None or slot.occupant is not occupant:
            return None
        if not slot.queue:
            del self._slots[key]
            return None
        waiter = slot.queue.popleft()
        waiter.turn = Turn.CONTEND
        slot.occupant = waiter.caller
        return waiter

    def leave(self, key: str, waiter: LocalWaiter) -> bool:
        """Give up waiting. False if it was this waiter's turn already: then it is for the waiter to pass it on."""
        if waiter.turn is not Turn.WAITING:
            return False
        slot = self._slots.get(key)
        if slot is not None and waiter in slot.queue:
            slot.queue.remove(waiter)
        return True

    def fail(self, key: str, occupant: object) -> list[LocalWaiter]:
        """``occupant`` could not reach the engine, and gives up its slot: neither could those behind it."""
        slot = self._slots.get(key)
        if slot is None or slot.occupant is not occupant:
            return []
        del self._slots[key]
        return _turned(slot.queue, Turn.UNREACHABLE)

    def close(self) -> list[LocalWaiter]:
        """Turn everybody away."""
        slots, self._slots = self._slots, {}
        return [waiter for slot in slots.values() for waiter in _turned(slot.queue, Turn.CLOSED)]


def _turned(queue: deque[LocalWaiter], turn: Turn) -> list[LocalWaiter]:
    for waiter in queue:
        waiter.turn = turn
    return list(queue)
