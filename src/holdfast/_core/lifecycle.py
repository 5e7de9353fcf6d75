"""Fork and interpreter exit: the two moments that concern all open clients (contract C12)."""

from __future__ import annotations

import atexit
import os
import time
import weakref
from typing import TYPE_CHECKING, Final, Protocol

from holdfast._runtime.blocking import BLOCKING
from holdfast._runtime.exit_hooks import run_exit_hooks

if TYPE_CHECKING:
    from holdfast._core.core import Core


class Client(Protocol):
    """A client, opened or not."""

    def _after_fork_in_child(self) -> None:
        """Replace locks that a thread of the parent may have held at the fork."""


_clients: weakref.WeakSet[Client] = weakref.WeakSet()
_open: weakref.WeakSet[Core] = weakref.WeakSet()
_EXIT_WITHIN: Final = 1.0
_FLUSH_WITHIN: Final = 0.5


def register_client(client: Client) -> None:
    """From now on ``client`` is notified of forks."""
    _clients.add(client)


def register(core: Core) -> None:
    """From now on ``core`` is disowned in forked children and released at interpreter exit."""
    _open.add(core)


def _after_fork_in_child() -> None:
    BLOCKING.after_fork_in_child()
    for client in list(_clients):
        client._after_fork_in_child()
    for core in list(_open):
        core.disown_in_child()
        core.engine.after_fork_in_child()
    _open.clear()


def _at_exit() -> None:
    """Best effort, bounded: what cannot be released now is free at its ttl. Watchdogs are daemons and still run."""
    cores = [core for core in _open if not core.closed]
    for core in cores:
        core.begin_close()
    end = time.monotonic() + _EXIT_WITHIN
    for core in cores:
        while core.watchdog.started and not core.watchdog.stopped.is_set() and time.monotonic() < end:
            time.sleep(0.002)
    _flush_observers(cores)
    run_exit_hooks()


def _flush_observers(cores: list[Core]) -> None:
    """What is queued is delivered, unless an observer takes too long: half a second for all of them."""
    end = time.monotonic() + _FLUSH_WITHIN
    for core in cores:
        while core.reports is not None and not core.reports.delivery.stopped.is_set() and time.monotonic() < end:
            time.sleep(0.002)


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
