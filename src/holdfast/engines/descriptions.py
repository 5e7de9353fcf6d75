"""Reads a description (``Claim.description``) back, strictly: other programs can write to an engine. Pure.

All engines use it; it is the only parser of holder metadata.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypedDict

#: A longer description, or a longer text in one, is not one that holdfast has written.
_LONGEST: Final = 4096
_LONGEST_TEXT: Final = 256
_PIDS: Final = 1 << 32


class Facts(TypedDict, total=False):
    """The keywords of a Holder or Waiter that a description gives. What it does not give is missing."""

    host: str
    pid: int
    thread: str
    program: str
    label: str
    value: str


def parsed(description: bytes) -> dict[str, Any]:
    """The JSON object; empty if it is none."""
    if len(description) > _LONGEST:
        return {}
    try:
        about = json.loads(description)
    except (ValueError, RecursionError):
        return {}
    return about if isinstance(about, dict) else {}


def facts(about: Mapping[str, Any]) -> Facts:
    """What it gives about a caller. Anything of the wrong type or size is left out."""
    found = Facts()
    for key in ("host", "thread", "program", "label", "value"):
        if (value := text(about.get(key))) is not None:
            found[key] = value
    pid = about.get("pid")
    if isinstance(pid, int) and not isinstance(pid, bool) and 0 < pid < _PIDS:
        found["pid"] = pid
    return found


def text(value: object) -> str | None:
    return value if isinstance(value, str) and len(value) <= _LONGEST_TEXT else None
