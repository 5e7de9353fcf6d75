"""Actors: the threads and tasks of a conformance test. One test body drives either kind.

``await actor.do(call)`` runs ``call()`` on the actor's own thread (sync) or in its own task (async), awaits there
whatever turns out to be awaitable, and gives back the result or the exception. The call is under way when ``do``
returns; so ``waiting = actor.do(lock.acquire)`` is how a test has somebody wait.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import queue
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol

Call = Callable[[], Any]
Body = Callable[[Any], Any]

_ENDS_WITHIN: Final = 5.0


class Actor(Protocol):
    """A caller of its own, as re-entrancy sees it: one thread, or one task."""

    def do(self, call: Call) -> asyncio.Future[Any]:
        """Run ``call`` there, after what it was given before."""

    def within(self, lock: Any, body: Body) -> asyncio.Future[Any]:
        """Run ``with lock as lease: return body(lease)`` there; in async ``async with``, and the body is awaited."""

    async def end(self) -> None:
        """Let the thread or task end, after what it was given."""


class ThreadActor:
    """An Actor that is a thread."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[tuple[Call, concurrent.futures.Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def do(self, call: Call) -> asyncio.Future[Any]:
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._calls.put((call, future))
        return asyncio.wrap_future(future)

    def within(self, lock: Any, body: Body) -> asyncio.Future[Any]:
        def run() -> Any:
            with lock as lease:
                return body(lease)

        return self.do(run)

    async def end(self) -> None:
        self._calls.put(None)
        await asyncio.to_thread(self._thread.join, _ENDS_WITHIN)
        assert not self._thread.is_alive(), f"{self._thread.name} is stuck in a call"

    def _run(self) -> None:
        while self._step():
            pass

    def _step(self) -> bool:
        # A frame of its own for each call: what it returned must not stay alive in a local variable, it may be a lease.
        item = self._calls.get()
        if item is None:
            return False
        call, future = item
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)
        return True


class TaskActor:
    """An Actor that is a task."""

    def __init__(self, name: str) -> None:
        self._calls: asyncio.Queue[tuple[Call, asyncio.Future[Any]] | None] = asyncio.Queue()
        self._task = asyncio.create_task(self._run(), name=name)

    def do(self, call: Call) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls.put_nowait((call, future))
        return future

    def within(self, lock: Any, body: Body) -> asyncio.Future[Any]:
        async def run() -> Any:
            async with lock as lease:
                return await settled(body(lease))

        return self.do(run)

    async def end(self) -> None:
        self._calls.put_nowait(None)
        _, stuck = await asyncio.wait([self._task], timeout=_ENDS_WITHIN)
        if stuck:
            self._task.cancel()
        assert not stuck, f"{self._task.get_name()} is stuck in a call"

    async def _run(self) -> None:
        while await self._step():
            pass

    async def _step(self) -> bool:
        item = await self._calls.get()
        if item is None:
            return False
        call, future = item
        try:
            result = await settled(call())
        except asyncio.CancelledError:
            future.cancel()
            raise
        except Exception as error:
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(result)
        return True


async def settled(value: Any) -> Any:
    """``value``, awaited if it is awaitable: the only difference between sync and async that test bodies see."""
    return await value if inspect.isawaitable(value) else value
