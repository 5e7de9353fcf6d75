"""The answer to one request: set by kazoo's thread, awaited by whoever asked, on a thread or on an event loop.

Nothing that kazoo's threads can reach keeps an asker alive. A task whose event loop was closed under it never goes on;
only as garbage it gives up its place in line.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from holdfast._runtime.base import Event, Runtime
from holdfast.engines.base import RequestFailed
from holdfast.engines.zookeeper.failures import ANSWERS, explained


class Reply:
    """The asker's end."""

    __slots__ = ("__weakref__", "_done", "_exception", "_value", "address")

    def __init__(self, done: Event) -> None:
        self._done = done
        self._value: Any = None
        self._exception: BaseException | None = None
        self.address = Address(self)

    def arrive(self, value: Any, exception: BaseException | None) -> None:
        self._value, self._exception = value, exception
        self._done.set()

    async def wait(self, until: float) -> bool:
        return await self._done.wait(until)

    async def answer(self, until: float) -> Any:
        """What the servers said. Raises kazoo's own NoNodeError and the like, RequestFailed, or EngineRefused."""
        if not await self._done.wait(until):
            raise RequestFailed("ZooKeeper did not answer in time", may_have_happened=True)
        if self._exception is None:
            return self._value
        if isinstance(self._exception, ANSWERS):
            raise self._exception
        raise explained(self._exception) from self._exception


class Address:
    """The end that kazoo has, in place of its AsyncResult. What comes when the asker is gone is dropped."""

    __slots__ = ("_reply",)

    def __init__(self, reply: Reply) -> None:
        self._reply = weakref.ref(reply)

    @property
    def is_orphan(self) -> bool:
        return self._reply() is None

    def set(self, value: Any = None) -> None:
        if (reply := self._reply()) is not None:
            reply.arrive(value, None)

    def set_exception(self, exception: BaseException) -> None:
        if (reply := self._reply()) is not None:
            reply.arrive(None, exception)


class Then:
    """For an answer that nobody waits for: where to go on, on kazoo's thread."""

    __slots__ = ("_done", "_failed")

    def __init__(self, done: Callable[[Any], None], failed: Callable[[BaseException], None]) -> None:
        self._done = done
        self._failed = failed

    def set(self, value: Any = None) -> None:
        self._done(value)

    def set_exception(self, exception: BaseException) -> None:
        self._failed(exception)


def ignore(_: object) -> None:
    """An answer that does not matter."""


class Alarm:
    """Something that happens once, and may be waited for several times, by one at a time."""

    __slots__ = ("_sleeper", "rung")

    def __init__(self) -> None:
        self.rung = False
        self._sleeper: Address | None = None

    def ring(self) -> None:
        self.rung = True
        if self._sleeper is not None:
            self._sleeper.set()

    async def wait(self, runtime: Runtime, until: float) -> None:
        reply = Reply(runtime.event())
        self._sleeper = reply.address  # before the look: whoever rings now finds it
        if not self.rung:
            await reply.wait(until)
