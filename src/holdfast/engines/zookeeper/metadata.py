"""What a node says about its owner, for people. A node of Java's has its host's address there, or anything. Pure."""

from __future__ import annotations

import json
import time
from typing import Any, Final

from holdfast.engines import descriptions
from holdfast.engines.base import Claim, Holder, Waiter

_LONGEST_TTL: Final = 7 * 86400


def describe(claim: Claim, ttl: float) -> bytes:
    """The data of a claim's node, whose session has the time-out ``ttl``."""
    about = {"owner": claim.owner, "ttl": ttl, **descriptions.parsed(claim.description)}
    return json.dumps(about, separators=(",", ":")).encode()


def holder(node: str, data: bytes, stat: Any) -> tuple[Holder, float | None]:
    """The owner of a node, as far as it says so (else its name stands for the owner); and how long it may hold out.

    ``since`` is when it joined the queue, not when it became the head. How long: if its process died now. The servers
    do not say when they last heard of a session.
    """
    about = descriptions.parsed(data)
    owner, since = descriptions.text(about.get("owner")), stat.ctime / 1000.0
    if owner is None:
        return Holder(node, since=since, token=stat.czxid), None
    remaining = _number(about.get("ttl"), _LONGEST_TTL)
    until = None if remaining is None else time.time() + remaining
    found = Holder(owner, **descriptions.facts(about), since=since, until=until, token=stat.czxid, count=1)
    return found, remaining


def waiter(node: str, data: bytes, stat: Any) -> Waiter:
    """The same of a node that is not the first in the queue."""
    about = descriptions.parsed(data)
    owner, since = descriptions.text(about.get("owner")), stat.ctime / 1000.0
    return Waiter(node, since=since) if owner is None else Waiter(owner, **descriptions.facts(about), since=since)


def _number(value: object, limit: float) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 < value < limit else None
