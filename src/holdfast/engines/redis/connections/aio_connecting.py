"""One attempt to connect from an event loop, shared by all tasks that need the connection."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from holdfast.engines.redis.connections.aio_timeouts import LoopTimer

#: An attempt that has used this part of its time, or more, has failed for lack of time.
_IN_TIME: Final = 0.9


class Connecting:
    """One attempt to connect, and the callers that wait for it.

    It is a task of its own, because the caller that happened to come first may be cancelled. (The task may be cancelled
    too, by code that cancels all tasks of a loop; before its first step, it would not even notice.) One timer serves
    all callers, which does not count the time for which thousands of them keep the loop busy.
    """

    def __init__(self, connect: Coroutine[Any, Any, None], seconds: float) -> None:
        self.longest_left = 0.0  #: when it ended: the longest time that one of the waiting callers had left
        self.ran_out = False  #: it has ended for lack of time, as far as is known
        self._waiting: list[tuple[asyncio.Future[None], float]] = []  # with the time at which each gives up
        self.task = asyncio.get_running_loop().create_task(connect)
        try:
            self._timer = LoopTimer(seconds, self._tick)
            self.task.add_done_callback(self._settle)
        except BaseException:
            self.task.cancel()  # a signal: no caller knows of it, so nothing would close its connection
            raise

    async def ended(self, timeout: float) -> float:
        """Wait until it has ended, or for ``timeout``; how much of that was spent."""
        began = self._timer.spent()
        future = self.task.get_loop().create_future()
        self._waiting.append((future, began + timeout))
        await future
        return self._timer.spent() - began

    def _tick(self) -> None:
        if self.task.done():
            self._settle(self.task)  # a signal has interrupted it before
            return
        now = self._timer.spent()
        for future, until in self._waiting:
            if until <= now and not future.done():
                future.set_result(None)
        self._waiting = [each for each in self._waiting if not each[0].done()]

    def _settle(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # retrieved: if every caller was cancelled meanwhile, asyncio would complain
        now = self._timer.spent()
        self.ran_out = now >= _IN_TIME * self._timer.seconds
        while self._waiting:
            future, until = self._waiting[-1]
            if not future.done():
                self.longest_left = max(self.longest_left, until - now)
                future.set_result(None)
            self._waiting.pop()
        self._timer.stop()
