"""The events of one run as a readable trace, and the violation that ended it."""

from __future__ import annotations

import re
from typing import Any, Final

_OWNER: Final = re.compile(r"[0-9a-f-]{36}:\d+")


class Violation(AssertionError):
    """An invariant of docs/design/invariants.md did not hold. ``invariant`` is its short name, such as ``I1``."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


class History:
    """Events in order. They are formatted only when they are printed, and most runs are never printed."""

    def __init__(self) -> None:
        self.events: list[tuple[float, str, str, tuple[Any, ...]]] = []

    def add(self, time: float, source: str, what: str, *details: Any) -> None:
        self.events.append((time, source, what, details))

    def lines(self) -> list[str]:
        return [
            f"{time:12.6f} {source:<14} {what:<12} {' '.join(_shown(detail) for detail in details)}"
            for time, source, what, details in self.events
        ]


def _shown(detail: Any) -> str:
    """A detail as text. Of a script call: its first key and its arguments; of an owner: the last four digits."""
    if not isinstance(detail, list) or detail[0] not in (b"EVALSHA", b"EVAL"):
        return str(detail)
    count = int(detail[2])
    arguments = detail[3 + count :]
    words = [word.decode() for word in (*detail[3 : 3 + min(count, 1)], *arguments) if not word.startswith(b"{")]
    return " ".join(f"…{word[-4:]}" if _OWNER.fullmatch(word) else word for word in words) + " ->"
