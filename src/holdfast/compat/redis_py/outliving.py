"""Locks with a timeout live until it, also if the program drops the Lock object or ends without ``release()``.

That is what redis-py promises, and programs use it: "not more than once in an hour" is a lock with ``timeout=3600``
that is never released. A holdfast lease ends with its last reference, so these are referenced here until they expire.
"""

from __future__ import annotations

import atexit
from typing import Any, Final

from holdfast.client import BaseClient

_kept: Final[dict[Any, None]] = {}


def keep(lease: Any) -> None:
    """Refer to ``lease`` until it is released or lost."""
    while (oldest := _oldest()) is not None and not oldest.held:
        discard(oldest)  # not reported: its event loop was closed before
    _kept[lease] = None
    lease.on_lost(discard)  # called at once if it is lost already


def discard(lease: Any) -> None:
    """``lease`` is released, or about to be, or lost."""
    _kept.pop(lease, None)


def _oldest() -> Any:
    try:
        return next(iter(_kept), None)
    except RuntimeError:  # another thread, or a signal handler, changed it between the two calls
        return None


def leave_all(client: BaseClient | None = None) -> None:
    """``client``, or every one, is about to be closed, which would release them: leave its locks to their timeouts."""
    for lease in list(_kept):
        core = lease._hold.core
        if client is None or core is client._opened:
            core.leave_to_expire(lease._hold)


# Registered after holdfast's own function for this, and so called before it.
atexit.register(leave_all)
