"""``acquire.lua``, ``raise.lua`` and ``join.lua``: how a claim is granted, on one server or on several. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from holdfast.engines.base import Busy, Granted
from holdfast.engines.redis.dialect.keys import keys_of
from holdfast.engines.redis.dialect.packing import Argument, milliseconds
from holdfast.engines.redis.dialect.requests import Arguments, Call, Closing
from holdfast.engines.redis.scripts import ACQUIRE, JOIN, RAISE

#: Settings whose packed form is kept; beyond that all are dropped.
_KEPT: Final = 256
#: The reply of acquire.lua where the lock is free, but a live waiter is before a claim that must not barge.
_NOT_ITS_TURN: Final = -2


class AcquireEncoder:
    """Encodes calls of ``acquire.lua``. ``counter_ttl``: of the fencing counter, in ms; 0: it never expires.

    What names neither the lock nor the owner is packed once for each combination of settings.
    """

    def __init__(self, counter_ttl: int) -> None:
        self._counter_ttl = counter_ttl
        self._closings: dict[tuple[float, int, bool, bytes], Closing] = {}
        self._around_description: dict[tuple[float, int, bool], tuple[Closing, Closing]] = {}

    def encode(
        self,
        name: str,
        owner: str,
        ttl: float,
        tokens: int,
        description: bytes,
        *,
        non_barging: bool,
        waiter: str | None = None,
        proposal: int = 0,
    ) -> Call:
        """``waiter``: the claim's entry in the queue, which a grant removes. ``proposal``: the token to propose where
        several servers must issue the same; 0: the server's time."""
        keys = keys_of(name)
        if proposal:
            closing = Closing.of(
                milliseconds(ttl), tokens, description, self._counter_ttl, 1 if non_barging else 0, proposal
            )
        else:
            found = self._closings.get((ttl, tokens, non_barging, description))
            closing = found if found is not None else self._close(ttl, tokens, description, non_barging)
        if waiter is None:
            return Call(ACQUIRE, keys.acquire, Arguments(owner, closing))
        return Call(ACQUIRE, (*keys.acquire, keys.waiter(waiter)), (owner, *closing, waiter))

    def _close(self, ttl: float, tokens: int, description: bytes, non_barging: bool) -> Closing:
        """Pack the end of a request and keep it.

        Each task of an event loop has a description of its own, often for one lock: the parts around it are kept too.
        """
        parts = self._around_description.get((ttl, tokens, non_barging))
        if parts is None:
            if len(self._around_description) >= _KEPT:
                self._around_description.clear()
            parts = (
                Closing.of(milliseconds(ttl), tokens),
                Closing.of(self._counter_ttl, 1 if non_barging else 0, 0),
            )
            self._around_description[ttl, tokens, non_barging] = parts
        closing = Closing.around(parts[0], description, parts[1])
        if len(self._closings) >= _KEPT:
            self._closings.clear()
        self._closings[ttl, tokens, non_barging, description] = closing
        return closing


def decode_acquire(reply: Any) -> Granted | Busy:
    if reply.__class__ is int:
        return Busy(reply / 1000.0 if reply >= 0 else None)
    return Granted(int(reply))


def is_not_its_turn(reply: Any) -> bool:
    """Whether ``acquire.lua`` found the lock free, but a live waiter before this claim."""
    return reply.__class__ is int and reply == _NOT_ITS_TURN


def encode_raise(name: str, owner: str, token: int, counter_ttl: int) -> Call:
    """Raise a server's fencing counter to ``token``, if ``owner`` holds the lock there."""
    return Call(RAISE, keys_of(name).raise_, (owner, token, counter_ttl))


def decode_raise(reply: Any) -> bool:
    """Whether the owner holds the lock at this server, whose counter is at least the token."""
    return reply.__class__ is int and reply == 1


class Joining(NamedTuple):
    """One lease that a server is to take part in; its ``token`` is the last of the block of ``tokens``."""

    name: str
    owner: str
    token: int
    tokens: int
    description: bytes


def encode_join(leases: Sequence[Joining], ttl: float, counter_ttl: int) -> Call:
    """Have a server take part in leases that a majority of the others has confirmed. Its reply needs no decoder: the
    next renewal finds out."""
    args: list[Argument] = [milliseconds(ttl), counter_ttl]
    for lease in leases:
        args += (lease.owner, lease.token, lease.tokens, lease.description)
    keys = [key for lease in leases for key in keys_of(lease.name).join]
    return Call(JOIN, keys, args, watched=[lease.name for lease in leases])
