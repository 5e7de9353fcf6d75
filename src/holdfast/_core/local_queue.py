"""Who waits inside this process. Pure bookkeeping: no clock, no I/O; callers hold the core's lock.

For each name at most one local contender is known to the engine; the others queue here, first come first served. A slot
exists while somebody of this process holds the name or contends for it. When it falls vacant, the head of the queue either
inherits the grant (no round trip) or is told that it is its turn to contend.
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

    __slots__ = ("event", "gift", "policy", "turn")

    def __init__(self, policy: Policy, event: Event) -> None:
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
    """The slots of one client."""

    def __init__(self) -> None:
        self._slots: dict[str, deque[LocalWaiter]] = {}

    def occupy(self, key: str) -> bool:
        """Take the slot if it is vacant: then the caller contends, and must vacate or hand on later."""
        if key in self._slots:
            return False
        self._slots[key] = deque()
        return True

    def join(self, key: str, waiter: LocalWaiter) -> None:
        """Queue up at an occupied slot."""
        self._slots[key].append(waiter)

    def waiting(self, key: str) -> int:
        return len(self._slots.get(key, ()))

    def heir(self, grant: Grant, now: float) -> LocalWaiter | None:
        """Hand ``grant`` to the head of its queue if the rules allow. The caller rings the heir's event."""
        queue = self._slots.get(grant.claim.name)
        if not queue or not may_hand_on(grant, queue[0].policy, now):
            return None
        waiter = queue.popleft()
        waiter.turn, waiter.gift = Turn.INHERIT, grant
        return waiter

    def vacate(self, key: str) -> LocalWaiter | None:
        """The occupant is done. The next in line, if any, becomes the occupant; the caller rings its event."""
        queue = self._slots.get(key)
        if queue is None:
            return None
        if not queue:
            del self._slots[key]
            return None
        waiter = queue.popleft()
        waiter.turn = Turn.CONTEND
        return waiter

    def leave(self, key: str, waiter: LocalWaiter) -> bool:
        """Give up waiting. False if it was this waiter's turn already: then it is for the waiter to pass it on."""
        if waiter.turn is not Turn.WAITING:
            return False
        self._slots[key].remove(waiter)
        return True

    def fail(self, key: str) -> list[LocalWaiter]:
        """The occupant could not reach the engine, and gives up its slot: neither could those behind it."""
        waiters = list(self._slots.pop(key, ()))
        for waiter in waiters:
            waiter.turn = Turn.UNREACHABLE
        return waiters

    def close(self) -> list[LocalWaiter]:
        """Turn everybody away."""
        waiters = [waiter for queue in self._slots.values() for waiter in queue]
        for waiter in waiters:
            waiter.turn = Turn.CLOSED
        for queue in self._slots.values():
            queue.clear()
        return waiters
