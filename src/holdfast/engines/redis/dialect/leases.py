"""``renew.lua`` and ``release.lua``, and the look at what a claim holds: how a lease goes on and ends. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from holdfast.engines.base import Found, RequestFailed
from holdfast.engines.redis.dialect.keys import Keys, keys_of, renewed
from holdfast.engines.redis.dialect.packing import Argument, milliseconds
from holdfast.engines.redis.dialect.replies import Answer, WrongType
from holdfast.engines.redis.dialect.requests import HEADS, Arguments, Call, Closing, Opening, Plain, Publish
from holdfast.engines.redis.scripts import RELEASE, RENEW
from holdfast.errors import EngineRefused

#: Leases renewed by one script: a longer one would block the server's other clients for too long.
MOST_RENEWED: Final = 200
#: A tombstone outlives any duplicate of its claim, and the claim's own lease (s).
SHORTEST_TOMBSTONE: Final = 60.0
#: The replies of release.lua where it has released the lock, and where the lock is free.
RELEASED: Final = 1
FREE: Final = 0

_FOUND: Final = {RELEASED: Found.OURS, FREE: Found.GONE, -1: Found.STOLEN, -2: Found.MIXED}


def encode_renew(
    leases: Sequence[tuple[str, str]],
    ttl: float,
    counter_ttl: int,
    *,
    always_write: bool = False,
    lock_only: bool = False,
) -> Call:
    """Extend ``leases`` (name, owner) to at least ``ttl``. ``counter_ttl``: of their fencing counters, in ms; 0: do not
    touch it. ``always_write``: also where there is nothing to extend, for replicas to acknowledge. ``lock_only``: name
    no key but the locks; the holders' metadata and the counters have to wait for the next renewal."""
    keys = [key for name, _ in leases for key in ((name,) * 3 if lock_only else renewed(name))]
    args: list[Argument] = [milliseconds(ttl), 0 if lock_only else counter_ttl, 1 if always_write else 0]
    args += [owner for _, owner in leases]
    return Call(RENEW, keys, args, watched=[name for name, _ in leases])


def decode_renew(reply: Answer, count: int) -> Sequence[Found | RequestFailed]:
    """One answer for each of ``count`` leases."""
    if isinstance(reply, EngineRefused):
        # Retried until the lease expires: an ACL can be corrected, a lost lease cannot.
        refusal, reply = reply, RequestFailed(str(reply), may_have_happened=False)
        reply.__cause__ = refusal
    if isinstance(reply, RequestFailed):
        return [reply] * count
    return [_FOUND[found] for found in reply]


def encode_release(
    name: str,
    owner: str,
    publish: Publish,
    *,
    tombstone: float | None = None,
    waiter: str | None = None,
    entry: bytes | None = None,
) -> Call:
    """Remove what ``owner`` holds. ``tombstone``: seconds for which no duplicate of its requests may take effect; None:
    none is under way. ``waiter``, ``entry``: its id in the queue, and what it has joined it with, to be removed too."""
    keys = keys_of(name)
    if tombstone is None:
        closing = keys.release_closing(publish)
    else:
        closing = Closing.of(keys.channel, publish, milliseconds(tombstone))
    if waiter is None:
        return Call(RELEASE, keys.release, Arguments(owner, closing))
    rest = (waiter,) if entry is None else (waiter, entry)
    return Call(RELEASE, (*keys.release, keys.queue, keys.waiter(waiter)), (owner, *closing, *rest))


def encode_release_directly(keys: Keys, owner: str, publish: Publish, awaited: bool) -> tuple[Opening, bytes]:
    """The same, without a tombstone or a waiter: what nearly every release is. ``awaited``: others are expected to wait
    for the lock; else a command is saved if none does."""
    opening, rest = (keys.releases.get(publish) or keys.pack_releases(publish))[awaited]
    word = owner.encode()
    return opening, b"".join((opening.packed, HEADS[len(word)], word, rest))


def decode_release(reply: Any) -> Found:
    return _FOUND[reply]


def decode_directly(reply: Any) -> Found | None:
    """None: ask again by the full way, which finds out what an error means."""
    return _FOUND[reply] if reply.__class__ is int else None


def tombstone_for(ttl: float) -> float:
    """How long the tombstone of a claim with this ttl must last, in seconds."""
    return max(2 * ttl, SHORTEST_TOMBSTONE)


def encode_look(name: str, owner: str) -> Call:
    """Whether ``owner`` holds the lock: one plain command, which the tracking connection then tracks."""
    return Plain("HEXISTS", name, owner)


def decode_look(reply: Answer) -> Found | RequestFailed:
    """GONE may also be STOLEN: the command does not distinguish them. A key of another type has replaced the lock."""
    if isinstance(reply, WrongType):
        return Found.STOLEN
    if isinstance(reply, Exception):
        (failure,) = decode_renew(reply, 1)
        return failure
    return Found.OURS if reply else Found.GONE
