"""Logging for threads that must not wait, and must not log where a lock is held.

A handler of the user's may block, may hold its own lock while it waits for a lock of ours, and ``__del__`` may run
inside it. So the watchdog never calls one: its records are written by a thread for callbacks.
"""

from __future__ import annotations

import logging
import os
import time
from functools import partial
from typing import Any, Final

from holdfast._runtime.blocking import BLOCKING
from holdfast._runtime.exit_hooks import after_release_at_exit

#: The interpreter's exit waits a quarter of a second for records that are not written yet.
_FLUSHES: Final = 125
_FLUSH_EACH: Final = 0.002
_pending: Final[dict[object, None]] = {}


def log_later(logger: logging.Logger, level: int, message: str, *args: Any) -> None:
    """Log it soon, on another thread. Best effort: dropped if there can be no thread."""
    if not logger.isEnabledFor(level):
        return
    record = object()
    _pending[record] = None
    try:
        BLOCKING.dispatch(partial(_log, record, logger, level, message, *args))
    except RuntimeError:
        _pending.pop(record, None)


def _log(record: object, logger: logging.Logger, level: int, message: str, *args: Any) -> None:
    try:
        logger.log(level, message, *args)
    finally:
        _pending.pop(record, None)


def _flush() -> None:
    for _ in range(_FLUSHES):
        if _pending:
            time.sleep(_FLUSH_EACH)


after_release_at_exit(_flush)
os.register_at_fork(after_in_child=_pending.clear)  # the parent writes them
