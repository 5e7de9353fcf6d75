"""The asyncio runtime: events that other threads may set, and timers on the clock of deadlines (``clock.py``)."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable, Coroutine, Hashable, Sequence
from typing import Any, Final

from holdfast._runtime import callers, clock
from holdfast._runtime.asyncio_sleeps import settled
from holdfast._runtime.base import Wakeup
from holdfast._runtime.description import Description
from holdfast.errors import UsageError

_log: Final = logging.getLogger("holdfast.callbacks")

# The loop's clock does not count system suspend: read the clock of deadlines at least this often.
_SLICE: Final = 1.0
#: Tasks whose description is kept; beyond that all are dropped.
_KNOWN_TASKS: Final = 1024


class AsyncioEvent:
    """A set-once flag for tasks of one loop; ``set`` may be called from any thread."""

    __slots__ = ("_flag", "_futures", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._flag = False
        self._futures: list[asyncio.Future[bool]] = []

    def set(self) -> None:
        self._flag = True
        if asyncio._get_running_loop() is self._loop:
            self._wake()
        elif not self._loop.is_closed():
            # A waiter that has just read the flag as unset is on the list by the time the loop runs this.
            _call_soon(self._loop, self._wake)

    def is_set(self) -> bool:
        return self._flag

    def _wake(self) -> None:
        futures, self._futures = self._futures, []
        for future in futures:
            if not future.done():
                future.set_result(True)

    async def wait(self, until: float | None) -> bool:
        if self._flag:
            return True
        future: asyncio.Future[bool] = self._loop.create_future()
        self._futures.append(future)
        try:
            return await settled(future, until) or self._flag
        finally:
            if future in self._futures:
                self._futures.remove(future)


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:
        _log.debug("the event loop was closed before the callback could run")


class _Described(dict[str, bytes]):
    """The descriptions of tasks and threads by their names."""

    __slots__ = ("_description",)

    def __init__(self, description: Description) -> None:
        super().__init__()
        self._description = description

    def __missing__(self, name: str) -> bytes:
        if len(self) >= _KNOWN_TASKS:
            self.clear()
        text = self[name] = self._description.of(name)
        return text


class AsyncioRuntime:
    """The runtime of one event loop. Created inside it."""

    def __init__(self) -> None:
        self.loop: Final = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()

    callers_hang_alone = False
    switches_threads = False
    now = staticmethod(clock.now)

    def caller(self) -> Hashable:
        # Outside of a task two callers cannot be distinguished: each call counts as a caller of its own.
        task = asyncio.current_task(self.loop)
        return object() if task is None else callers.identity(task)

    def at_home(self) -> bool:
        if asyncio.get_running_loop() is self.loop:
            return True
        if not self.loop.is_closed():
            raise UsageError("this client belongs to another event loop that is still open: connect() once per loop")
        return False

    def describer(self, label: str | None) -> Callable[[], bytes]:
        description, thread = Description(label), threading.current_thread().name
        loop, current_task = self.loop, asyncio.current_task
        known = _Described(description)  # a task often locks more than once

        def describe() -> bytes:
            task = current_task(loop)
            return known[thread if task is None else task.get_name()]

        return describe

    async def sleep_until(self, when: float) -> None:
        while (left := when - clock.now()) > 0:
            await asyncio.sleep(min(left, _SLICE))

    def event(self) -> AsyncioEvent:
        return AsyncioEvent(self.loop)

    def wakeup(self) -> Wakeup:
        raise NotImplementedError("only the watchdog uses a Wakeup, and it is a thread in sync and async")

    async def readable(self, filenos: Sequence[int], until: float | None) -> bool:
        future: asyncio.Future[bool] = self.loop.create_future()

        def ready() -> None:
            if not future.done():
                future.set_result(True)

        for fileno in filenos:
            self.loop.add_reader(fileno, ready)
        try:
            return await settled(future, until)
        finally:
            for fileno in filenos:
                self.loop.remove_reader(fileno)

    def spawn(self, main: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        _call_soon(self.loop, lambda: self._start(main, name))

    def _start(self, main: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        task: Any = self.loop.create_task(main(), name=name)
        task._log_destroy_pending = False  # no warning if the program closes its loop before the task ends
        self._keep(task)

    def dispatch(self, callback: Callable[[], Any]) -> None:
        _call_soon(self.loop, lambda: self._run(callback))

    def _run(self, callback: Callable[[], Any]) -> None:
        try:
            result = callback()
        except Exception:
            _log.exception("an on_lost callback raised")
            return
        if inspect.iscoroutine(result):
            self._keep(self.loop.create_task(_logged(result)))

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)  # the loop itself only keeps weak references
        task.add_done_callback(self._tasks.discard)


async def _logged(coroutine: Coroutine[Any, Any, Any]) -> None:
    try:
        await coroutine
    except Exception:
        _log.exception("an on_lost callback raised")
