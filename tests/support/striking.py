"""Ctrl-C at any moment: a timer whose signal handler raises in the main thread, wherever that is."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Struck(BaseException):
    """Like KeyboardInterrupt, but nobody else's."""


@contextmanager
def striking() -> Iterator[Callable[[float, Callable[[], object]], bool]]:
    """``strike(seconds, what)`` does ``what()`` and interrupts it after that time. Returns whether it did."""
    armed = False

    def handler(number: int, frame: object) -> None:
        if armed:
            raise Struck

    def strike(seconds: float, what: Callable[[], object]) -> bool:
        nonlocal armed
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, seconds)
            what()
            armed = False
        except Struck:
            # Another thread may take the signal late, when nobody expects it any more. In a finaliser it would be
            # swallowed, and pytest would keep what was to be finalised, with its traceback: a lease for ever.
            armed = False
            return True
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return False

    before = signal.signal(signal.SIGALRM, handler)
    try:
        yield strike
    finally:
        signal.signal(signal.SIGALRM, before)
