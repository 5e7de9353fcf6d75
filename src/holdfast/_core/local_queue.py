"""The waiters inside this process. Pure bookkeeping: no clock, no I/O; callers hold the core's lock.

For each name at most one local contender is known to the engine; the others queue here, first come first served. A slot
exists while a caller of this process holds the name or contends for it. When it falls vacant, the head of the queue
either inherits the grant (no round trip) or it is its turn to contend.

A thread accepts what it inherits when it runs. Until then a caller that comes may take the grant back and overtake it:
to wait for a switch to another thread after each hold would cost more than the hold. The waiter is the head of the
queue again. This is within the bounds of hand-overs: when they are used up, the lock is released, and it is the head's
turn to contend. So a waiter with n others before it is overtaken at most (n + 1) * MAX_HANDOVERS times.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from holdfast._core.grant import Grant
from holdfast._core.policy import Policy
from holdfast._runtime.base import Event

#: Hand-overs in a row before the engine must be asked again: other processes must get their turn.
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

    __slots__ = ("caller", "event", "inherited", "policy", "since", "turn")

    def __init__(self, caller: object, policy: Policy, event: Event, since: float) -> None:
        self.since = since  #: when it joined
        self.caller = caller  #: what will occupy the slot when the turn comes
        self.policy = policy
        self.event = event
        self.turn = Turn.WAITING
        self.inherited: Grant | None = None  #: only valid if its turn is to inherit

    @property
    def inherits(self) -> bool:
        return self.turn is Turn.INHERIT


def may_hand_on(grant: Grant, receiver: Policy, now: float) -> bool:
    """Whether ``grant`` may pass to a local waiter without a round trip, if no release of it was ever sent."""
    return (
        receiver.may_inherit_from(grant.policy)
        and grant.lost is None
        and grant.ttl == grant.policy.ttl
        and grant.next_token <= grant.last_token
        and grant.deadline - now >= grant.ttl / 2
        and now - grant.since <= MAX_CHAIN_SECONDS
    )


class LocalQueue:
    """The slots of one client.

    Each slot names its occupant (an acquisition under way, or the hold that came of it), and giving it up takes that
    name: so an interrupted caller may clean up without knowing how far it had come, and twice does no harm.

    A signal may interrupt every method between two steps. The occupant decides: it is changed in one step, before the
    waiter that it belongs to is taken from the queue and learns of its turn. What is left undone after that step,
    ``repair`` completes. The signal's handler may also use a lock itself, and return.

    What was handed over is an offer until it is accepted or taken back. Either takes it out of ``offers``, in one step.
    Without ``overtaking`` nothing is offered: the order is strict.
    """

    def __init__(self, *, overtaking: bool = True) -> None:
        self._overtaking = overtaking
        self.occupants: dict[str, Any] = {}  #: of each slot; for others to read, and for a hold to move in
        self.waiters: dict[str, deque[LocalWaiter]] = {}  #: by name, in order; for others to read
        self.offers: dict[str, LocalWaiter] = {}  #: what each name's last receiver has not accepted; for others to read

    def occupy(self, key: str, occupant: object) -> bool:
        """Take the slot if it is vacant: then the occupant contends, and must vacate or hand on later."""
        return self.occupants.setdefault(key, occupant) is occupant

    def move_in(self, key: str, before: object, occupant: object) -> bool:
        """Have ``occupant`` take the slot over from ``before``, if that has it."""
        occupants = self.occupants
        if key in occupants and occupants[key] is before:
            occupants[key] = occupant
            return True
        return False

    def join(self, key: str, waiter: LocalWaiter) -> None:
        """Queue up at an occupied slot."""
        queue = self.waiters.setdefault(key, deque())
        queue.append(waiter)
        self.waiters[key] = queue  # a signal handler that waited, alone, has removed it

    def occupant(self, key: str) -> object | None:
        """The acquisition or hold that has the slot of this name."""
        return self.occupants.get(key)

    def contended(self) -> list[str]:
        """The names that local callers wait for."""
        return list(self.waiters)

    def waiting(self, key: str) -> int:
        return len(self.waiters[key]) if key in self.waiters else 0

    def hand_over(self, grant: Grant, occupant: object, now: float) -> LocalWaiter | None:
        """Hand ``grant`` to the head of the queue if ``may_hand_on`` allows it. The caller sets that waiter's event."""
        head = self.next_holder(grant, occupant, now)
        if head is None:
            return None
        key = grant.name
        head.inherited, grant.handover = grant, (occupant, head)
        self.occupants[key] = head.caller
        self._remove(key, head)
        head.turn = Turn.INHERIT  # from here on it is handed over, and not before: see Grant.handed_on_by
        if self._overtaking:
            self.offers[key] = head  # the last step: a signal handler may take it back from here on
        return head

    def take_back(self, key: str, receiver: LocalWaiter, now: float) -> Grant | None:
        """Give what is offered under ``key`` to ``receiver``, which has just come, if ``may_hand_on`` allows it.

        The waiter that it is taken from is the head of the queue again, and learns of it when it runs.
        """
        waiter = self.offers.pop(key, None)  # from here on it is not offered: that does no harm, whatever comes
        grant = None if waiter is None or self.occupants.get(key) is not waiter.caller else waiter.inherited
        if waiter is None or grant is None or not waiter.inherits or not may_hand_on(grant, receiver.policy, now):
            return None
        receiver.inherited, receiver.turn = grant, Turn.INHERIT
        try:
            self._exchange(key, waiter, receiver, grant)
        except BaseException:
            self._exchange(key, waiter, receiver, grant)  # all of it, before others see it
            raise
        return grant

    def _exchange(self, key: str, waiter: LocalWaiter, receiver: LocalWaiter, grant: Grant) -> None:
        """Twice does no harm."""
        self.occupants[key] = receiver.caller
        queue = self.waiters.setdefault(key, deque())
        if not queue or queue[0] is not waiter:
            queue.appendleft(waiter)
        self.waiters[key] = queue  # as in join
        waiter.turn = Turn.WAITING
        if grant.handover is not None:
            grant.handover = (grant.handover[0], receiver)

    def keep(self, key: str, waiter: LocalWaiter | None) -> None:
        """What was handed over to ``waiter`` is not taken back from here on."""
        if self.offers.get(key) is waiter:
            self.offers.pop(key, None)

    def accept(self, key: str, waiter: LocalWaiter) -> bool:
        """Whether the turn of ``waiter`` has come; then it stays that."""
        self.keep(key, waiter)
        if waiter.turn is Turn.WAITING and self.occupants.get(key) is waiter.caller:
            self.repair(key, waiter)
        return waiter.turn is not Turn.WAITING

    def next_holder(self, grant: Grant, occupant: object, now: float) -> LocalWaiter | None:
        """To whom ``hand_over`` would hand it."""
        key = grant.name
        head = self._head(key)
        if head is None or self.occupants.get(key) is not occupant or not may_hand_on(grant, head.policy, now):
            return None
        return head

    def vacate(self, key: str, occupant: object) -> LocalWaiter | None:
        """``occupant`` is done. The next waiter, if any, takes the slot; the caller sets its event."""
        occupants = self.occupants
        if occupants.get(key) is not occupant:
            return None
        head = self._head(key) if key in self.waiters else None
        if head is None:
            occupants.pop(key, None)
            return None
        occupants[key] = head.caller
        head.turn = Turn.CONTEND
        self._remove(key, head)
        return head

    def repair(self, key: str, waiter: LocalWaiter) -> None:
        """``waiter`` has the slot, though the caller that gave it away was interrupted: make sure that it knows."""
        if waiter.turn is Turn.WAITING:
            waiter.turn = Turn.CONTEND
        self._remove(key, waiter)

    def _head(self, key: str) -> LocalWaiter | None:
        queue = self.waiters.get(key)
        while queue and queue[0].turn is not Turn.WAITING:
            queue.popleft()  # it learned of its turn, then the signal came
        return queue[0] if queue else None

    def _remove(self, key: str, waiter: LocalWaiter) -> None:
        queue = self.waiters.get(key)
        if queue is not None:
            try:
                if waiter in queue:
                    queue.remove(waiter)
            except ValueError:
                pass  # a signal handler has removed it in between
            if not queue:
                self.waiters.pop(key, None)

    def leave(self, key: str, waiter: LocalWaiter) -> bool:
        """Give up waiting. False if it was this waiter's turn already: then it is for the waiter to pass it on."""
        if self.accept(key, waiter):
            return False
        self._remove(key, waiter)
        return True

    def turn_away(self, key: str, before: float) -> list[LocalWaiter]:
        """The engine cannot be reached: remove the waiters that have waited since ``before`` or longer."""
        turned = _turned((waiter for waiter in self.waiters.get(key, ()) if waiter.since <= before), Turn.UNREACHABLE)
        for waiter in turned:
            self._remove(key, waiter)
        return turned

    def close(self) -> None:
        """Turn all waiters away. The caller sets their events."""
        for queue in list(self.waiters.values()):
            _turned(queue, Turn.CLOSED)
        self.waiters.clear()
        self.occupants.clear()
        self.offers.clear()


def _turned(queue: Iterable[LocalWaiter], turn: Turn) -> list[LocalWaiter]:
    waiters = list(queue)
    for waiter in waiters:
        waiter.turn = turn
    return waiters
