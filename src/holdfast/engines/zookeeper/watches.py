"""Who is to be told when a node goes or changes: one watch for each node and session, however many ask.

On the servers a watch stays until it fires. A lock that is held for days, and waited for ten thousand times in vain,
must not gather ten thousand of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

Tell = Callable[[], None]


class Watches:
    """Of one session. Thread-safe. What is to be told must not block: it is called on kazoo's thread."""

    def __init__(self) -> None:
        self._mutex = threading.RLock()  # as the hub's: the collector may call from within
        self._told: dict[str, list[Tell]] = {}

    def add(self, path: str, tell: Tell) -> bool:
        """Have ``tell`` called once, when the node changes or nobody looks at it any more. True: nobody does yet, so
        the caller must set the watch, with a request that carries ``on_event``; and ``fire`` if it could not."""
        with self._mutex:
            told = self._told.get(path)
            if told is None:
                self._told[path] = [tell]
                return True
            told.append(tell)
            return False

    def discard(self, path: str, tell: Tell) -> None:
        """The watch itself stays until it fires: servers before 3.6 cannot take it back from one client alone."""
        with self._mutex:
            told = self._told.get(path)
            if told is not None and tell in told:
                told.remove(tell)

    def fire(self, path: str) -> None:
        with self._mutex:
            told = self._told.pop(path, [])
        for tell in told:
            tell()

    def on_event(self, event: Any) -> None:
        """Called by kazoo: for one node; or, without a path, because all watches are lost with the connection."""
        if event.path is not None:
            self.fire(event.path)
            return
        with self._mutex:
            paths = list(self._told)
        for path in paths:
            self.fire(path)
