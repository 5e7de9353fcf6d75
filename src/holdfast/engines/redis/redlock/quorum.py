"""What the answers of several servers mean together. Pure: no clock, no I/O.

``answers`` has one entry for each server, in the servers' order: its answer, or the exception in its place.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from holdfast.engines.base import Found, Granted, Holder, LockState, RequestFailed, is_of_grant
from holdfast.engines.redis.dialect.grants import decode_acquire
from holdfast.engines.redis.dialect.metadata import Block
from holdfast.engines.redis.dialect.replies import Answer
from holdfast.errors import EngineRefused


def majority(servers: int) -> int:
    """Any two sets of this size have a server in common."""
    return servers // 2 + 1


class Tally(NamedTuple):
    """An acquire's first phase: which servers granted (and their tokens), which are held by others (and for how long),
    which gave no usable answer, and which of those may have granted all the same."""

    granted: Mapping[int, int]
    busy: Mapping[int, float | None]
    failed: Mapping[int, RequestFailed | EngineRefused]
    unresolved: frozenset[int]

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


def unanimous(answers: Sequence[Answer]) -> int | None:
    """The token that every server has granted, as nearly always; None: see ``tally``."""
    first = answers[0]
    return int(first) if first.__class__ is bytes and answers.count(first) == len(answers) else None


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
        elif isinstance(outcome := decode_acquire(answer), Granted):
            granted[server] = outcome.token
        else:
            busy[server] = outcome.remaining
    return Tally(granted, busy, failed, frozenset(unresolved))


def found(answers: Sequence[Found | Exception], quorum: int) -> Found | None:
    """What a majority found of a claim; None: too few answered to decide.

    Ours: for a majority it is. Not ours any more: for so many it is not that no majority is left.
    """
    if answers.count(Found.OURS) >= quorum:
        return Found.OURS
    stolen, gone = answers.count(Found.STOLEN) + answers.count(Found.MIXED), answers.count(Found.GONE)
    if len(answers) - stolen - gone >= quorum:
        return None
    return Found.STOLEN if stolen >= quorum else Found.GONE


def owner_of(token: int, views: Sequence[Mapping[str, Block | None]], servers: int) -> str | None:
    """The owner that holds or may hold the lock with ``token``, by the views of those ``servers`` that answered.

    An owner's token is the largest that any server knows of it: the second phase of an acquire may not have reached all
    of them. An owner that too few servers know, even if all that did not answer know it too, made an attempt and holds
    nothing: two attempts may have been given the same number by different servers.
    """
    seen: dict[str, list[Block]] = {}
    for view in views:
        for owner, block in view.items():
            seen.setdefault(owner, []).append(block or Block(-1, 0))
    unanswered = servers - len(views)
    having = [
        owner
        for owner, blocks in seen.items()
        if is_of_grant(token, *max(blocks)) and len(blocks) + unanswered >= majority(servers)
    ]
    return max(having, key=lambda owner: len(seen[owner]), default=None)


def merged(name: str, states: Sequence[LockState], quorum: int) -> LockState:
    """One view of a lock, from those servers that answered: an owner with a majority holds it; a smaller part is only
    an attempt. It ends when it has expired at so many servers that no majority is left.

    Waiters queue at one server, all at the same one unless it has failed meanwhile: the longest queue is shown.
    """
    holders = dict[str, Holder]()
    for owner in dict.fromkeys(holder.owner for state in states for holder in state.holders):
        seen = [holder for state in states for holder in state.holders if holder.owner == owner]
        if len(seen) >= quorum:
            # A server that joined later has a later beginning.
            best = max(seen, key=lambda holder: (holder.token or 0, -(holder.since or 0.0)))
            holders[owner] = dataclasses.replace(best, until=_nth_longest([holder.until for holder in seen], quorum))
    held = [state.remaining for state in states if any(holder.owner in holders for holder in state.holders)]
    longest = max(states, key=lambda state: state.waiters, default=LockState(name))
    return LockState(
        name,
        tuple(holders.values()),
        waiters=longest.waiters,
        queue=longest.queue,
        token=max((state.token for state in states if state.token is not None), default=None),
        remaining=_nth_longest(held, quorum) if holders else None,
    )


def _nth_longest(times: Sequence[float | None], place: int) -> float | None:
    """None is longer than any other: it has no end."""
    return sorted(times, key=lambda time: math.inf if time is None else time, reverse=True)[place - 1]
