"""What a node says about its owner, for people. A node of Java's has its host's address there, or anything. Pure."""

from __future__ import annotations

import json
import time
from typing import Any, Final

from holdfast.engines.base import Claim, Holder

_LONGEST: Final = 4096
_LONGEST_TEXT: Final = 256
_LONGEST_TTL: Final = 7 * 86400


def describe(claim: Claim, ttl: float) -> bytes:
    """The data of a claim's node, whose session has the time-out ``ttl``."""
    about = {"owner": claim.owner, "ttl": ttl, **json.loads(claim.description)}
    return json.dumps(about, separators=(",", ":")).encode()


def holder(node: str, data: bytes, stat: Any) -> tuple[Holder, float | None]:
    """Who owns a node, as far as it says so (else its name stands for the owner); and how long it may hold out.

    ``since`` is when it came into the line, not when it got to its head. How long: if its process died now. The servers
    do not say when they last heard of a session.
    """
    about = _parsed(data)
    owner, since = _text(about.get("owner")), stat.ctime / 1000.0
    if owner is None:
        return Holder(node, since=since, token=stat.czxid), None
    remaining = _number(about.get("ttl"), _LONGEST_TTL)
    pid = _number(about.get("pid"), 1 << 32)
    found = Holder(
        owner,
        host=_text(about.get("host")),
        pid=None if pid is None else int(pid),
        thread=_text(about.get("thread")),
        program=_text(about.get("program")),
        since=since,
        until=None if remaining is None else time.time() + remaining,
        token=stat.czxid,
        count=1,
    )
    return found, remaining


def _parsed(data: bytes) -> dict[str, Any]:
    if len(data) > _LONGEST:
        return {}
    try:
        about = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return about if isinstance(about, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and len(value) <= _LONGEST_TEXT else None


def _number(value: object, limit: float) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 < value < limit else None
