"""What the keys of a grant and of a waiter hold about their owners. No I/O.

Read back strictly: any program that can write to the server can write anything there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from holdfast.engines import descriptions
from holdfast.engines.base import MOST_WAITERS, Holder, LockState, Waiter

#: As the acquire script writes it: last token of the block, size of the block, time, owner, description.
_METADATA: Final = re.compile(rb"(\d{1,16}) (\d{1,9}) (\d{1,12}\.\d{6}) (\S{1,256}) (.{0,4096})", re.DOTALL)
#: As the acquire scripts of read-write locks and semaphores write it: token, time, of permits three more numbers (see
#: permits_facts.lua), description.
_FACT: Final = re.compile(rb"(\d{1,16}) (\d{1,12}\.\d{6}) (?:\d{1,16} ){0,3}(.{0,4096})", re.DOTALL)
#: As the enqueue script writes it: time, owner, description.
_WAITER: Final = re.compile(rb"(\d{1,12}\.\d{6}) (\S{1,256}) (.{0,4096})", re.DOTALL)
_NUMBER: Final = re.compile(rb"\d{1,16}")


class Block(NamedTuple):
    """Fencing tokens that were reserved together."""

    last: int
    tokens: int


class _Grant(NamedTuple):
    owner: bytes
    last: int  #: of its block of tokens
    tokens: int
    since: float
    description: bytes

    @property
    def token(self) -> int:
        """The first of the block: that of the holder, unless the hold was handed on inside its process."""
        return self.last - self.tokens + 1


def waiter_about(owner: str, description: bytes) -> bytes:
    """What a waiter's key holds about its claim, after the time, which the script adds."""
    return b"%b %b" % (owner.encode(), description)


def lock_state(name: str, reply: Sequence[Any]) -> LockState:
    """The reply of the inspect script, for people."""
    fields, pttl, metadata, counter, waiting, seconds, micros, described, fair = reply[:9]
    remaining = pttl / 1000.0 if pttl >= 0 else None
    until = None if remaining is None else int(seconds) + int(micros) / 1e6 + remaining
    grant = _grant(metadata)
    pairs = zip(fields[::2], fields[1::2], strict=True)
    holders = tuple(_holder(owner, count, grant, until) for owner, count in pairs)
    queue = waiters(described)
    # In a queue of their own, which holdfast does not join.
    queue += [Waiter(owner.decode("utf-8", "replace")) for owner in fair]
    return LockState(
        name,
        holders,
        waiting + len(fair),
        number(counter),
        remaining if holders else None,
        tuple(queue[:MOST_WAITERS]),
    )


def blocks(reply: Sequence[Any]) -> dict[str, Block | None]:
    """The owners in a reply of the inspect script, each with the block of tokens that it was granted, if known."""
    grant = _grant(reply[2])
    return {
        owner.decode("utf-8", "replace"): None
        if grant is None or grant.owner != owner
        else Block(grant.last, grant.tokens)
        for owner in reply[0][::2]
    }


def _holder(owner: bytes, count: bytes, grant: _Grant | None, until: float | None) -> Holder:
    shown = owner.decode("utf-8", "replace")
    if grant is None or grant.owner != owner:
        return Holder(shown, until=until, count=number(count))
    facts = descriptions.facts(descriptions.parsed(grant.description))
    return Holder(shown, **facts, since=grant.since, until=until, token=grant.token, count=number(count))


def waiters(described: Sequence[bytes], mode: Callable[[bytes], str] = lambda _: "exclusive") -> list[Waiter]:
    """Ids and values of waiters' keys, alternating. ``mode``: of a waiter, by its id."""
    pairs = zip(described[::2], described[1::2], strict=True)
    return [_waiter(waiter, about, mode(waiter)) for waiter, about in pairs]


def _waiter(waiter: bytes, about: bytes, mode: str) -> Waiter:
    """A waiter of an older version stores nothing about itself: its id stands for its owner."""
    found = _WAITER.fullmatch(about)
    if found is None:
        return Waiter(waiter.decode("utf-8", "replace"), mode=mode)
    since, owner, description = found.groups()
    facts = descriptions.facts(descriptions.parsed(description))
    return Waiter(owner.decode("utf-8", "replace"), **facts, since=float(since), mode=mode)


def shared_holder(owner: str, fact: bytes | None, mode: str, count: int | None, until: float | None) -> Holder:
    """One of several holders. ``fact``: what its grant has stored about it."""
    found = _FACT.fullmatch(fact or b"")
    if found is None:
        return Holder(owner, until=until, count=count, mode=mode)
    token, since, description = found.groups()
    facts = descriptions.facts(descriptions.parsed(description))
    return Holder(owner, **facts, since=float(since), until=until, token=int(token), count=count, mode=mode)


def _grant(metadata: bytes | None) -> _Grant | None:
    found = _METADATA.fullmatch(metadata or b"")
    if found is None:
        return None
    last, tokens, time, owner, description = found.groups()
    return _Grant(owner, int(last), int(tokens), float(time), description)


def number(value: bytes | None) -> int | None:
    return int(value) if value is not None and _NUMBER.fullmatch(value) else None
