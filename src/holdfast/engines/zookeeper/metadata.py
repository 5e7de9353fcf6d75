"""The data of a node describes its owner. A Java program's node contains its host's address, or anything. Pure."""

from __future__ import annotations

import json
import time
from typing import Any, Final

from holdfast.engines import descriptions
from holdfast.engines.base import Claim, Holder, Waiter

_LONGEST_TTL: Final = 7 * 86400


def describe(claim: Claim, ttl: float) -> bytes:
    """The data of a claim's node, whose session has the timeout ``ttl``."""
    about = {"owner": claim.owner, "ttl": ttl, **descriptions.parsed(claim.description)}
    return json.dumps(about, separators=(",", ":")).encode()


def holder(node: str, data: bytes, stat: Any) -> tuple[Holder, float | None]:
    """The owner of a node (the node's name, if the data does not contain it); and for how long it may still hold.

    ``since`` is when it joined the queue, not when it became the head. The remaining time is the session's timeout, as
    if the process died now: the servers do not report when they last received something from a session.
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
    """The same for a node that is not the first in the queue."""
    about = descriptions.parsed(data)
    owner, since = descriptions.text(about.get("owner")), stat.ctime / 1000.0
    return Waiter(node, since=since) if owner is None else Waiter(owner, **descriptions.facts(about), since=since)


def _number(value: object, limit: float) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 < value < limit else None
