"""Waiting for an event with a deadline, instead of sleeping and hoping."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(what: Callable[[], object], within: float = 5.0) -> float:
    """Wait until ``what()`` is true; fail after ``within`` seconds. Returns how long it took."""
    start = time.monotonic()
    while not what():
        assert time.monotonic() - start < within, f"did not happen within {within:g} s"
        time.sleep(0.002)
    return time.monotonic() - start
