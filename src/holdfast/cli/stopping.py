"""Signals that end a command. They raise SystemExit, so that processes, files and a hidden cursor are cleaned up."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, NoReturn

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def unwinding() -> Iterator[list[int]]:
    """The first of these signals raises SystemExit; later ones are ignored. Yields a list that will contain it.

    Later ones would interrupt the cleanup: when a session ends, SIGHUP and SIGTERM often arrive together, and users
    press Ctrl-C more than once. A signal that was ignored from the start stays ignored (nohup, background jobs).
    """
    received: list[int] = []
    before: dict[int, Any] = {}

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        received.append(number)
        raise SystemExit(128 + number)

    try:
        for each in _SIGNALS:
            if signal.getsignal(each) is not signal.SIG_IGN:
                before[each] = signal.signal(each, stop)
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
