"""``acquire.lua``, ``raise.lua`` and ``join.lua``: how a claim is granted, on one server or on several. No I/O.

``acquire_load.lua`` also reads a register.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from holdfast.engines.base import Attempt, Busy, Granted
from holdfast.engines.redis.dialect import registers
from holdfast.engines.redis.dialect.keys import keys_of
from holdfast.engines.redis.dialect.packing import Argument, milliseconds
from holdfast.engines.redis.dialect.replies import Answer
from holdfast.engines.redis.dialect.requests import HEADS, HEADS_CAP, Arguments, Call, Closing, Opening, Packed, head
from holdfast.engines.redis.scripts import ACQUIRE, ACQUIRE_LOAD, ACQUIRE_OR_JOIN, JOIN, RAISE
from holdfast.engines.registers import RegisterKey

#: Settings whose packed form is kept; beyond that all are dropped.
_KEPT: Final = 256
#: Digits of a token that is a time in microseconds, see acquire_free.lua.
TOKEN_DIGITS: Final = 16
_SMALLEST_TOKEN: Final = 10 ** (TOKEN_DIGITS - 1)
#: The reply of acquire_free.lua where acquire.lua is to be asked.
_ASK_AGAIN: Final = -3
#: The replies of acquire_or_join.lua where a claim need not do more than wait, and where it has not joined.
_WAIT: Final = -5
_WITHDRAWN: Final = -7
#: The reply of acquire.lua where the lock is free, but a live waiter is before a claim that must not barge.
_NOT_ITS_TURN: Final = -2


class AcquireEncoder:
    """Encodes calls of ``acquire.lua``. ``counter_ttl``: of the fencing counter, in ms; 0: it never expires.

    What names neither the lock nor the owner is packed once for each combination of settings.
    """

    def __init__(self, counter_ttl: int) -> None:
        self._counter_ttl = counter_ttl
        self._closings: dict[tuple[float, int, bool, bytes], Closing] = {}
        self._ttls: dict[float, bytes] = {}
        self._counter = b"\r\n" + Closing.of(counter_ttl).packed
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
        entry: bytes | None = None,
        proposal: int = 0,
        register: RegisterKey | None = None,
    ) -> Call:
        """``waiter``, ``entry``: the claim's id in the queue, and what it has joined it with, which a grant removes.
        ``proposal``: the token to propose where several servers must issue the same; 0: the
        server's time. ``register``: to be loaded with a grant."""
        keys = keys_of(name)
        if proposal:
            closing = Closing.of(
                milliseconds(ttl), tokens, description, self._counter_ttl, 1 if non_barging else 0, proposal
            )
        else:
            found = self._closings.get((ttl, tokens, non_barging, description))
            closing = found if found is not None else self._close(ttl, tokens, description, non_barging)
        script, opening = ACQUIRE, keys.acquire
        if register is not None:
            script, opening = ACQUIRE_LOAD, registers.acquire_load(register)
        if waiter is None:
            return Call(script, opening, Arguments(owner, closing))
        rest = (waiter,) if entry is None else (waiter, entry)
        return Call(script, (*opening, keys.waiter(waiter)), (owner, *closing, *rest))

    def encode_joining(self, attempt: Attempt, place: str, before: Sequence[Argument]) -> tuple[Call, bytes]:
        """Take the lock, or join the queue; and the entry that the queue has then. ``place``: see ``waiters.seat_at``.
        ``before``: id and entry in the queue that it has to leave."""
        claim, owner = attempt.claim, attempt.owner
        non_barging = claim.fair or claim.non_barging
        entry = f"{place} {claim.tokens} {self._counter_ttl} {owner} ".encode() + claim.description
        keys = joining_keys(claim.name)
        if before:
            args = (owner, milliseconds(claim.ttl), 1 if non_barging else 0, entry, *before)
            return Call(ACQUIRE_OR_JOIN, keys, args), entry
        word, ttl = owner.encode(), self._ttls.get(claim.ttl) or self._packed_ttl(claim.ttl)
        barging = _NON_BARGING if non_barging else _BARGING
        parts = (keys.packed, head(len(word)), word, ttl, barging, head(len(entry)), entry, b"\r\n")
        return Packed(keys, b"".join(parts)), entry

    def encode_free(self, keys: Opening, owner: str, ttl: float, description: bytes) -> bytes:
        """For a claim on one token that was not sent before: ``acquire_free.lua``. ``keys``: ``Keys.acquire_free``."""
        word, size = owner.encode(), len(description)
        parts = (
            keys.packed,
            HEADS[len(word)],
            word,
            self._ttls.get(ttl) or self._packed_ttl(ttl),
            HEADS[size] if size < HEADS_CAP else head(size),
            description,
            self._counter,
        )
        return b"".join(parts)

    def encode_proposed(self, name: str, owner: str, ttl: float, description: bytes, proposal: int) -> Call | None:
        """As ``encode_free``, where several servers must issue the same token: the ``proposal``. None: it has not the
        digits of a token."""
        if not _SMALLEST_TOKEN <= proposal < 10 * _SMALLEST_TOKEN:
            return None
        keys = _proposed_keys(name)
        free = self.encode_free(keys, owner, ttl, description)
        return Packed(keys, b"%b%b%d\r\n" % (free, HEADS[TOKEN_DIGITS], proposal))

    def _packed_ttl(self, ttl: float) -> bytes:
        """Pack what follows the owner, if that is the ttl, and keep it."""
        if len(self._ttls) >= _KEPT:
            self._ttls.clear()
        packed = self._ttls[ttl] = b"\r\n" + Closing.of(milliseconds(ttl)).packed
        return packed

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


#: Whether a claim may overtake live waiters.
_BARGING: Final = Closing.of(0).packed
_NON_BARGING: Final = Closing.of(1).packed


@lru_cache(maxsize=4096)
def joining_keys(name: str) -> Opening:
    """The keys of ``acquire_or_join.lua``."""
    keys = keys_of(name)
    return Opening.of(ACQUIRE_OR_JOIN, (name, keys.queue, keys.tombstones), arguments=4)


@lru_cache(maxsize=4096)
def _proposed_keys(name: str) -> Opening:
    """As ``Keys.acquire_free``, for one argument more."""
    keys = keys_of(name).acquire_free
    return Opening.of(keys.script, tuple(keys), arguments=5)


def decode_acquire(reply: Any) -> Granted | Busy:
    if reply.__class__ is int:
        return Busy(reply / 1000.0 if reply >= 0 else None)
    if reply.__class__ is list:
        token, *content = reply
        return Granted(int(token), loaded=registers.decode_cell(content) if content else None)
    return Granted(int(reply))


def decode_free(reply: Any) -> int | Busy | None:
    """The token, or Busy; None: ask by ``acquire.lua``, which also finds out what an error means."""
    if reply.__class__ is bytes:
        return int(reply)
    if reply.__class__ is not int or reply == _ASK_AGAIN:
        return None
    return Busy(reply / 1000.0 if reply >= 0 else None)


class Joined(NamedTuple):
    """The claim is in the queue. ``watch``: it should watch the lock soon."""

    watch: bool


_JOINED: Final = Joined(watch=False)


def decode_joining(reply: Any) -> Granted | Joined | Busy:
    """Busy: it was withdrawn, and has not joined."""
    if reply.__class__ is not int:
        return decode_acquire(reply)
    return _JOINED if reply == _WAIT else Busy() if reply == _WITHDRAWN else Joined(watch=True)


def left_to_acquire(replies: Sequence[Answer]) -> list[int]:
    """The places of those replies of ``acquire_free.lua`` that say: nothing was done, ask ``acquire.lua``."""
    return [at for at, reply in enumerate(replies) if reply == _ASK_AGAIN] if _ASK_AGAIN in replies else []


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
