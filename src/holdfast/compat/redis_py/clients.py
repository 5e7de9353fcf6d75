"""The holdfast client behind a redis client: one for each, for as long as the redis client or a lock of it lives."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, Final, TypeVar

C = TypeVar("C")

# redis-py's connections cannot be used: a lock is renewed from another thread, and waiters are woken by pushes.
# The value refers to a copy of the settings, not to the redis client, so that both can be garbage collected.
_clients: Final[weakref.WeakKeyDictionary[Any, Any]] = weakref.WeakKeyDictionary()
_lock: Final = threading.RLock()


def client_for(redis: Any, connect: Callable[[Any], C]) -> C:
    """The holdfast client for ``redis``, made by ``connect`` the first time."""
    with _lock:
        client = _clients.get(redis)
        if client is None:
            client = _clients[redis] = connect(redis)
        made: C = client
        return made
