"""The data of a node describes its owner. A Java program's node contains its host's address, or anything. Pure."""

from __future__ import annotations

import json
import time
from typing import Any, Final

from holdfast.engines import descriptions
from holdfast.engines.base import Claim, Holder, Waiter

_LONGEST_TTL: Final = 7 * 86400


def describe(claim: Claim, ttl: float, token: int | None = None) -> bytes:
    """The data of a claim's node, whose session has the timeout ``ttl``. ``token``: its fencing token, if that is not
    the transaction that created the node."""
    about: dict[str, object] = {"owner": claim.owner, "ttl": ttl, **descriptions.parsed(claim.description)}
    if token is not None:
        about["token"] = token
    if claim.mode.permits > 1:
        about["permits"] = claim.mode.permits
    return json.dumps(about, separators=(",", ":")).encode()


def wanted(data: bytes) -> int:
    """How many permits the claim of a node in a semaphore's queue asks for."""
    permits = _number(descriptions.parsed(data).get("permits"), 2**31)
    return 1 if permits is None else int(permits)


def holder(
    node: str, data: bytes, stat: Any, mode: str, count: int = 1, *, candidate: bool = False
) -> tuple[Holder, float | None]:
    """The owner of a node (the node's name, if the data does not contain it); and for how long it may still hold.
    ``candidate``: it is in an election, where the data of a Java program's node is the program's id.

    ``since`` is when it joined the queue, not when it became the head. The remaining time is the session's timeout, as
    if the process died now: the servers do not report when they last received something from a session.
    """
    about = descriptions.parsed(data)
    owner, since = descriptions.text(about.get("owner")), stat.ctime / 1000.0
    if owner is None:
        value = _id(data) if candidate else None
        # How many times Java holds a lock, it alone knows; permits are counted here.
        known = count if mode == "permits" else None
        return Holder(node, since=since, token=stat.czxid, count=known, mode=mode, value=value), None
    remaining = _number(about.get("ttl"), _LONGEST_TTL)
    until = None if remaining is None else time.time() + remaining
    found = Holder(
        owner,
        **descriptions.facts(about),
        since=since,
        until=until,
        token=token(data, stat),
        count=count,
        mode=mode,
    )
    return found, remaining


def token(data: bytes, stat: Any) -> int:
    """The fencing token of a node's owner: a read inside a write has that of the write."""
    inherited = _number(descriptions.parsed(data).get("token"), stat.czxid)
    return int(stat.czxid if inherited is None else inherited)


def waiter(node: str, data: bytes, stat: Any, mode: str, *, candidate: bool = False) -> Waiter:
    """The same for a node that waits."""
    about = descriptions.parsed(data)
    owner, since = descriptions.text(about.get("owner")), stat.ctime / 1000.0
    if owner is None:
        return Waiter(node, since=since, mode=mode, value=_id(data) if candidate else None)
    return Waiter(owner, **descriptions.facts(about), since=since, mode=mode)


def _id(data: bytes) -> str | None:
    """What a Java program calls itself in a ``LeaderLatch``; None if it has no id, or the data is no text."""
    try:
        return descriptions.text(data.decode()) or None
    except UnicodeDecodeError:
        return None


def _number(value: object, limit: float) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 < value < limit else None
