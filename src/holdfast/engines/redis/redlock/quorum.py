"""What the answers of several servers amount to. Pure: no clock, no I/O.

``answers`` has one entry for each server, in the servers' order: what it said, or the exception in its place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from holdfast.engines.base import Found, LockState, RequestFailed
from holdfast.engines.redis.channel import Answer
from holdfast.errors import EngineRefused


#: What the acquire script answers if the lock is free, but not for one who must not overtake.
_NOT_YOUR_TURN: Final = -2


def majority(servers: int) -> int:
    """Any two sets of this size have a server in common."""
    return servers // 2 + 1


class Tally(NamedTuple):
    """An acquire's first phase: which servers granted (and their tokens), which are held by others (and for how long),
    which gave no usable answer, and which of those may have granted all the same. ``out_of_turn``: one has a line of
    waiters, and the claim must not overtake them."""

    granted: Mapping[int, int]
    busy: Mapping[int, float | None]
    failed: Mapping[int, RequestFailed | EngineRefused]
    unresolved: frozenset[int]
    out_of_turn: bool

    @property
    def token(self) -> int:
        """The largest that was issued: the others must be raised to it."""
        return max(self.granted.values())

    def below_token(self) -> list[int]:
        token = self.token
        return [server for server, issued in self.granted.items() if issued < token]

    def remaining(self, quorum: int) -> float | None:
        """When enough servers will be free, as far as is known; None: it is not."""
        times = sorted(seconds for seconds in self.busy.values() if seconds is not None)
        missing = quorum - len(self.granted)
        return times[missing - 1] if 0 < missing <= len(times) else None


def tally(answers: Sequence[Answer]) -> Tally:
    granted: dict[int, int] = {}
    busy: dict[int, float | None] = {}
    failed: dict[int, RequestFailed | EngineRefused] = {}
    unresolved = set[int]()
    for server, answer in enumerate(answers):
        if isinstance(answer, RequestFailed | EngineRefused):
            failed[server] = answer
            if isinstance(answer, RequestFailed) and answer.may_have_happened:
                unresolved.add(server)
        elif isinstance(answer, int):
            busy[server] = answer / 1000.0 if answer >= 0 else None
        else:
            granted[server] = int(answer)
    return Tally(granted, busy, failed, frozenset(unresolved), _NOT_YOUR_TURN in answers)


def found(answers: Sequence[Found | Exception], quorum: int) -> Found | None:
    """What a majority found of a claim; None: too few answered to tell.

    Ours: a majority says so. Not ours any more: so many say so that no majority is left.
    """
    ours = sum(answer is Found.OURS for answer in answers)
    stolen = sum(answer is Found.STOLEN for answer in answers)
    gone = sum(answer is Found.GONE for answer in answers)
    if ours >= quorum:
        return Found.OURS
    if len(answers) - stolen - gone >= quorum:
        return None
    return Found.STOLEN if stolen >= quorum else Found.GONE


def merged(name: str, states: Sequence[LockState], quorum: int) -> LockState:
    """One view of a lock, from those servers that answered: who has a majority holds it; a smaller part is only an
    attempt. It ends when so many servers have forgotten it that no majority is left."""
    holders = []
    for owner in dict.fromkeys(holder.owner for state in states for holder in state.holders):
        seen = [holder for state in states for holder in state.holders if holder.owner == owner]
        if len(seen) >= quorum:
            ends = sorted((holder.until or 0.0 for holder in seen), reverse=True)
            best = max(seen, key=lambda holder: holder.token or 0)
            holders.append(dataclasses.replace(best, until=ends[quorum - 1] or None))
    left = sorted((state.remaining or 0.0 for state in states if state.holders), reverse=True)
    return LockState(
        name,
        tuple(holders),
        waiters=max((state.waiters for state in states), default=0),
        token=max((state.token for state in states if state.token is not None), default=None),
        remaining=left[quorum - 1] if holders else None,
    )
