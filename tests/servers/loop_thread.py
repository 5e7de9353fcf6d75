"""An event loop on a thread of its own, for relays and proxies between a client and a server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

#: The longest that any call on the loop may take. Reaching it is a bug in the tests.
_TIMEOUT: Final = 10.0


class LoopThread:
    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def do(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run ``main()`` on the loop and wait for its result."""
        if self._loop.is_closed():
            raise RuntimeError("not running; use it in a with block")
        return asyncio.run_coroutine_threadsafe(main(), self._loop).result(_TIMEOUT)

    def close(self) -> None:
        """Stop the loop and its thread; idempotent."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_TIMEOUT)
        self._loop.close()
