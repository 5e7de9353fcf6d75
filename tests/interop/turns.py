"""Python's part where programs of both languages take turns: ``Contender.java`` does the same."""

from __future__ import annotations

import time

import holdfast


def take_turns(locks: holdfast.Client, name: str, hold: float, think: float, seconds: float) -> tuple[int, float]:
    """Holds the lock, then leaves it, for some seconds each, again and again. How many times, and the longest wait."""
    lock, grants, longest = locks.lock(name), 0, 0.0
    end = time.monotonic() + seconds
    while (before := time.monotonic()) < end:
        with lock:
            longest = max(longest, time.monotonic() - before)
            if hold:
                time.sleep(hold)
        grants += 1
        if think:
            time.sleep(think)
    return grants, longest
