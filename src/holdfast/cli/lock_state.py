"""A lock, its holders and its waiters: as data for JSON, and as lines for people. Pure: the time is an argument.

Ages mix this host's clock with the holder's: they are for people, and nothing may depend on them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from holdfast.cli.output import visible
from holdfast.engines.base import Holder, LockState, Waiter

#: The facts about a waiter, in the order in which they are shown, and about a holder, which has more.
_WHO: Final = ("owner", "host", "pid", "thread", "program", "label", "since")
_WAITER_FACTS: Final = (*_WHO, "mode", "value")
_FACTS: Final = (*_WHO, "until", "token", "count", "mode", "value")
UNKNOWN: Final = "-"
_USUAL: Final = "exclusive"


def as_data(state: LockState) -> dict[str, Any]:
    """Everything known, for JSON. Times are epoch seconds; what is unknown is null."""
    return {
        "name": state.name,
        "kind": state.kind,
        "held": bool(state.holders),
        "token": state.token,
        "remaining": state.remaining,
        "size": state.size,
        "free": state.free,
        "waiters": state.waiters,
        "holders": [holder_data(holder) for holder in state.holders],
        "queue": [_data(waiter, _WAITER_FACTS) for waiter in state.queue],
        "conditions": dict(state.conditions),
    }


def holder_data(holder: Holder) -> dict[str, Any]:
    return _data(holder, _FACTS)


def token_of(state: LockState) -> int | None:
    """The token that ``break --token`` compares: the holder's; None if the lock is free or another library's."""
    return next((holder.token for holder in state.holders if holder.token is not None), None)


def as_lines(state: LockState, now: float) -> Iterator[str]:
    """Everything known, for people."""
    permits = "" if state.size is None else f", {_or_unknown(state.free)} of {state.size} permits free"
    yield f"{state.kind} {visible(repr(state.name))}: {'held' if state.holders else 'free'}{permits}"
    if not state.holders and state.token is not None:
        yield f"  last token  {state.token}"
    for holder in state.holders:
        yield from _person("held by", holder)
        yield f"  since      {_moment(holder.since, now)}"
        yield f"  remaining  {duration(_remaining(state, holder, now))}"
        yield f"  token      {_or_unknown(holder.token)}"
        yield f"  count      {_or_unknown(holder.count)}"
        if holder.mode != _USUAL:
            yield f"  mode       {holder.mode}"
    yield f"waiters: {state.waiters}"
    for place, waiter in enumerate(state.queue, 1):
        yield from _person(f"{place}. waiter", waiter)
        yield f"  since      {_moment(waiter.since, now)}"
        if waiter.mode != _USUAL:
            yield f"  mode       {waiter.mode}"
    for name, waiters in state.conditions.items():
        yield f"condition {visible(repr(name))}: {waiters} waiting"


def headings() -> tuple[str, ...]:
    return ("NAME", "HOLDER", "HELD", "REMAINING", "TOKEN", "WAITERS", "KIND")


def as_row(state: LockState, now: float) -> tuple[str, ...]:
    """One held lock in the columns of ``headings``."""
    first = state.holders[0]
    others = f" +{len(state.holders) - 1}" if len(state.holders) > 1 else ""
    held = None if first.since is None else max(0.0, now - first.since)
    return (
        visible(state.name),
        person(first) + others,
        duration(held),
        duration(_remaining(state, first, now)),
        _or_unknown(token_of(state)),
        str(state.waiters),
        _kind(state),
    )


def _kind(state: LockState) -> str:
    """With how it is held: rwlock:read, semaphore:2/5."""
    if state.size is not None and state.free is not None:
        return f"{state.kind}:{state.size - state.free}/{state.size}"
    mode = state.holders[0].mode
    return state.kind if mode == _USUAL else f"{state.kind}:{mode}"


def person(one: Holder | Waiter, *, labelled: bool = True) -> str:
    """A holder or waiter in a few words: program@host pid [label]; for another library's, the owner."""
    if one.host is None and one.pid is None and one.program is None:
        return visible(one.owner)
    label = f" [{one.label}]" if labelled and one.label is not None else ""
    return visible(f"{one.program or '?'}@{one.host or '?'} pid {_or_unknown(one.pid)}{label}")


def duration(seconds: float | None) -> str:
    """Seconds for people: 0.4s, 12s, 3m05s, 2h05m, 3d04h."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f}s"
    whole = round(seconds)
    for size, unit, part, part_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // part:02}{part_unit}"
    return f"{whole}s"


def _person(heading: str, one: Holder | Waiter) -> Iterator[str]:
    yield f"{heading} {person(one, labelled=False)}"
    for fact, value in (("thread", one.thread), ("label", one.label), ("value", one.value)):
        if value is not None:
            yield f"  {fact:9}  {visible(value)}"
    yield f"  owner      {visible(one.owner)}"


def _moment(when: float | None, now: float) -> str:
    if when is None:
        return UNKNOWN
    try:
        written = datetime.fromtimestamp(when).astimezone().isoformat(" ", "seconds")
    except (OverflowError, OSError, ValueError):  # another program wrote it
        return visible(str(when))
    return f"{written} ({duration(max(0.0, now - when))} ago)"


def _remaining(state: LockState, holder: Holder, now: float) -> float | None:
    return state.remaining if holder.until is None else max(0.0, holder.until - now)


def _data(one: Holder | Waiter, facts: tuple[str, ...]) -> dict[str, Any]:
    return {fact: getattr(one, fact) for fact in facts}


def _or_unknown(value: object) -> str:
    return UNKNOWN if value is None else str(value)
