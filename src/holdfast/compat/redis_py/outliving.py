"""Keeps locks with a timeout until the timeout, even if the program drops the Lock object or ends without a release.

redis-py promises that, and programs rely on it: "not more than once an hour" is a lock with ``timeout=3600`` that is
never released. A holdfast lease ends with its last reference, so these leases are referenced here until they expire.
"""

from __future__ import annotations

import atexit
from typing import Any, Final

from holdfast.base_client import BaseClient

_kept: Final[dict[Any, None]] = {}


def keep(lease: Any) -> None:
    """Refer to ``lease`` until it is released or lost."""
    while (oldest := _oldest()) is not None and not oldest.held:
        discard(oldest)  # its loss was not reported, since its event loop was closed before
    _kept[lease] = None
    lease.on_lost(discard)  # called at once if it is lost already


def discard(lease: Any) -> None:
    """Stop referring to ``lease``: it is being released, or is lost."""
    _kept.pop(lease, None)


def _oldest() -> Any:
    try:
        return next(iter(_kept), None)
    except RuntimeError:  # another thread, or a signal handler, changed it between the two calls
        return None


def leave_all(client: BaseClient | None = None) -> None:
    """Have the locks of ``client`` (None: of every client) expire by their timeouts when the client is closed."""
    for lease in list(_kept):
        core = lease._hold.core
        if client is None or core is client._opened:
            core.leave_to_expire(lease._hold)


# Registered after the core's own exit function, and so called before it.
atexit.register(leave_all)
