"""Callbacks for the removal or change of a node: one watch per node and session, for any number of callbacks.

On the servers a watch stays until it fires. A lock that is held for days while ten thousand waiters time out must not
accumulate ten thousand watches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

Callback = Callable[[], None]


class Watches:
    """The watches of one session. Thread-safe. Callbacks run on kazoo's thread and must not block."""

    def __init__(self) -> None:
        self._mutex = threading.RLock()  # re-entrant, as the hub's: the garbage collector may call from within
        self._callbacks: dict[str, list[Callback]] = {}

    def add(self, path: str, callback: Callback) -> bool:
        """Call ``callback`` once, when the node changes or the watch is lost. True if there is no watch yet: the caller
        must set it, with a request that carries ``on_event``, and must call ``fire`` if that fails."""
        with self._mutex:
            callbacks = self._callbacks.get(path)
            if callbacks is None:
                self._callbacks[path] = [callback]
                return True
            callbacks.append(callback)
            return False

    def discard(self, path: str, callback: Callback) -> None:
        """Drop the callback. The watch stays until it fires: servers before 3.6 cannot remove a single client's."""
        with self._mutex:
            callbacks = self._callbacks.get(path)
            if callbacks is not None and callback in callbacks:
                callbacks.remove(callback)

    def fire(self, path: str) -> None:
        with self._mutex:
            callbacks = self._callbacks.pop(path, [])
        for callback in callbacks:
            callback()

    def on_event(self, event: Any) -> None:
        """Called by kazoo for one node; or without a path, when all watches are lost with the connection."""
        if event.path is not None:
            self.fire(event.path)
            return
        with self._mutex:
            paths = list(self._callbacks)
        for path in paths:
            self.fire(path)
