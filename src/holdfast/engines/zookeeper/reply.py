"""The answer to one request: set by kazoo's thread, awaited by the caller on a thread or an event loop.

kazoo's threads hold only weak references to callers. A task whose event loop was closed never continues; it gives up
its place in the queue when it is garbage collected, so nothing may keep it alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from holdfast._runtime.base import Event, Runtime
from holdfast.engines.base import RequestFailed
from holdfast.engines.zookeeper.failures import ANSWERS, explained


class Reply:
    """The caller's side."""

    __slots__ = ("__weakref__", "_done", "_exception", "_value", "receiver")

    def __init__(self, done: Event) -> None:
        self._done = done
        self._value: Any = None
        self._exception: BaseException | None = None
        self.receiver = ReplyReceiver(self)

    def arrive(self, value: Any, exception: BaseException | None) -> None:
        self._value, self._exception = value, exception
        self._done.set()

    async def wait(self, until: float) -> bool:
        return await self._done.wait(until)

    async def answer(self, until: float) -> Any:
        """The servers' answer. Raises kazoo's own NoNodeError and the like, RequestFailed, or EngineRefused."""
        if not await self._done.wait(until):
            raise RequestFailed("ZooKeeper did not answer in time", may_have_happened=True)
        if self._exception is None:
            return self._value
        if isinstance(self._exception, ANSWERS):
            raise self._exception
        raise explained(self._exception) from self._exception


class ReplyReceiver:
    """kazoo's side, in place of its AsyncResult. Drops an answer whose caller does not exist any more."""

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


class Callbacks:
    """For an answer that no caller waits for: functions that kazoo's thread calls."""

    __slots__ = ("_done", "_failed")

    def __init__(self, done: Callable[[Any], None], failed: Callable[[BaseException], None]) -> None:
        self._done = done
        self._failed = failed

    def set(self, value: Any = None) -> None:
        self._done(value)

    def set_exception(self, exception: BaseException) -> None:
        self._failed(exception)


def ignore(_: object) -> None:
    """For an answer that does not matter."""


class OneShotEvent:
    """An event that is set once, and may be waited for several times, by one waiter at a time."""

    __slots__ = ("_waiter", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._waiter: ReplyReceiver | None = None

    def set(self) -> None:
        self.is_set = True
        if self._waiter is not None:
            self._waiter.set()

    def end_wait(self) -> None:
        """The waiter returns though it is not set."""
        if self._waiter is not None:
            self._waiter.set()

    async def wait(self, runtime: Runtime, until: float) -> None:
        reply = Reply(runtime.event())
        self._waiter = reply.receiver  # before the check: a ``set`` from now on finds it
        if not self.is_set:
            await reply.wait(until)
