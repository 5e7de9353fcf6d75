"""Durations: values for ttl and timeout, converted to seconds. Pure.

Wrong values raise ValueError or TypeError. The readers of URLs, the environment and files turn these into a UsageError
with the origin of the value.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Final, TypeAlias

#: Seconds, a text with a unit ("500ms", "30s", "5m", "1h", "2d"), or a timedelta.
Duration: TypeAlias = float | str | timedelta

#: Below this, renewal (ttl / 3) would race with an ordinary network round trip.
MIN_TTL: Final = 0.1
#: Above this, the lock of a crashed holder would stay blocked for longer than operators accept.
MAX_TTL: Final = 7 * 86400.0

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_TEXT: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+) *(ms|[smhd])?")


def parse_duration(value: object, *, what: str = "duration") -> float:
    """Seconds from ``30``, ``0.5``, ``"30s"``, ``"5m"``, ``"1h"``, ``"2d"``, ``"500ms"`` or a timedelta.

    Raises ValueError for bool, NaN, infinity, negative values and other texts; TypeError for other types.
    """
    if isinstance(value, bool):  # an int to Python, but never meant as a duration
        raise ValueError(f"{what} is {value!r}: give seconds, not a bool")
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, str):
        seconds = _parse_text(value, what)
    elif isinstance(value, (int, float)):
        try:
            seconds = float(value)
        except OverflowError:
            seconds = math.inf
    else:
        raise TypeError(f"{what} is a {type(value).__name__}: give seconds, a timedelta, or a text such as '30s'")
    if not math.isfinite(seconds):
        raise ValueError(f"{what} is not a finite number of seconds")
    if seconds < 0:
        raise ValueError(f"{what} is negative: {seconds:g} s")
    return seconds


def _parse_text(text: str, what: str) -> float:
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{what} is not a duration; write seconds (30, 0.5) or a unit: 500ms, 30s, 5m, 1h, 2d")
    number, unit = match.groups()
    return float(number) * _UNITS[unit or "s"]


def check_ttl(ttl: object, *, what: str = "ttl") -> float:
    """Seconds of a lease: from 0.1 s to 7 days, else ValueError."""
    seconds = parse_duration(ttl, what=what)
    if not MIN_TTL <= seconds <= MAX_TTL:
        raise ValueError(
            f"{what} is {seconds:g} s, outside 0.1 s to 7 days; a lease is renewed while it is held, "
            "so it need not be as long as the work"
        )
    return seconds


def check_timeout(timeout: object, *, what: str = "timeout") -> float | None:
    """Seconds to wait, or None: for ever. Negative, NaN, infinite, bool, other texts: ValueError; else TypeError."""
    if timeout is None:
        return None
    if isinstance(timeout, float) and math.isinf(timeout) and timeout > 0:
        raise ValueError(f"{what} is infinite: give None to wait for ever")
    return parse_duration(timeout, what=what)
