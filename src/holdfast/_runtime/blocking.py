"""The blocking runtime: awaitables that never suspend, and the one-step driver that runs a coroutine on them."""

from __future__ import annotations

import logging
import os
import queue
import select
import threading
import types
import weakref
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, Final, TypeVar, cast

from holdfast._runtime import callers, clock
from holdfast._runtime.base import DONE, Rest
from holdfast._runtime.description import Description
from holdfast._runtime.threads import start_daemon

T = TypeVar("T")
_log: Final = logging.getLogger("holdfast.callbacks")

# A wait on CLOCK_MONOTONIC does not count system suspend: sleep in slices, and read the clock of deadlines after each.
_SLICE: Final = 1.0
#: Callbacks that run at the same time. Further ones wait until one of them returns.
_MOST_CALLBACK_THREADS: Final = 32
_IDLE_CALLBACK_THREAD: Final = 1.0


def _left(until: float | None) -> float:
    return _SLICE if until is None else min(_SLICE, until - clock.now())


class _OfThread(threading.local):
    """The stored description of the calling thread, for ``inspect``."""

    def __init__(self, description: Description) -> None:
        self.text = description.of(threading.current_thread().name)


class _Driver:
    """Runs one coroutine after another inside one generator.

    A coroutine that ends under ``yield from`` returns its result directly; driven by ``send`` alone it would raise
    StopIteration, which costs several microseconds for each lock.
    """

    __slots__ = ("_generator", "result", "send")

    def __init__(self) -> None:
        self.result: Any = None
        self._generator = self._run()
        next(self._generator)
        self.send = self._generator.send

    @types.coroutine  # allows it to "yield from" coroutines
    def _run(self) -> Generator[object, Coroutine[Any, Any, Any], None]:
        done = self  # yielded when a coroutine has ended; any other value comes from an awaitable that suspends
        while True:
            self.result = yield from (yield done)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine of the core to its end on the calling thread. One step: blocking awaitables never suspend."""
    try:
        driver = _idle_drivers.pop()  # atomic: two threads never get the same driver
    except IndexError:
        driver = _Driver()
    try:
        done = driver.send(coroutine) is driver
    except BaseException:
        # The traceback keeps this frame. It must not keep the coroutine: see _core/operations.py.
        del coroutine
        raise
    if not done:
        coroutine.close()
        raise RuntimeError("internal error in holdfast: the blocking runtime was asked to suspend")
    result: T = driver.result
    driver.result = None
    _idle_drivers.append(driver)  # not reached after an exception, which ends the driver's generator
    return result


def run_rest(rest: Rest) -> None:
    """Run the rest of a call, if there is any."""
    if rest is not DONE:
        try:
            run(cast("Coroutine[Any, Any, None]", rest))
        finally:
            del rest  # as in run


_idle_drivers: Final[list[_Driver]] = []


class BlockingEvent:
    """A set-once flag, and a gate that is closed until it is set.

    Only the flag decides; the gate, a raw lock, ends a sleep early. So a signal handler may raise anywhere in here.
    (threading.Condition is not safe then: its lock may stay locked for ever, or its release may raise an error that
    hides the caller's KeyboardInterrupt.)
    """

    __slots__ = ("_flag", "_gate")

    def __init__(self) -> None:
        self._flag = False
        self._gate = threading.Lock()
        self._gate.acquire()

    def set(self) -> None:
        self._flag = True
        self._open()

    def is_set(self) -> bool:
        return self._flag

    async def wait(self, until: float | None) -> bool:
        while not self._flag:
            left = _left(until)
            if left <= 0:
                return False
            if self._gate.acquire(timeout=left):
                # Let the next waiter through. If a signal interrupts this, waiters read the flag after their slice.
                self._open()
        return True

    def _open(self) -> None:
        if self._gate.locked():
            try:
                self._gate.release()
            except RuntimeError:
                pass  # another thread has just opened it


class _Pipe:
    """Two descriptors, and a lock that prevents the use of a descriptor that ``close`` has just closed.

    Re-entrant, so that a finaliser or a signal handler may call ``set`` while its own thread is in here.
    """

    __slots__ = ("lock", "read", "write")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.read = self.write = -1

    def open(self) -> None:
        self.read, self.write = os.pipe()
        os.set_blocking(self.read, False)
        os.set_blocking(self.write, False)

    def close(self) -> None:
        with self.lock:
            read, write, self.read, self.write = self.read, self.write, -1, -1
            for fd in (read, write):
                if fd >= 0:
                    os.close(fd)


class BlockingWakeup:
    """A Wakeup made of a pipe: ``set`` is one non-blocking write, so it is safe in ``__del__`` and signal handlers.

    When it becomes garbage, it is closed before any finaliser runs (by ``weakref.finalize``, since ``__del__`` methods
    run in any order). Otherwise a finaliser with work left could find it open and start a thread on it, and it would
    then be closed under that thread.
    """

    __slots__ = ("__weakref__", "_pipe")

    def __init__(self) -> None:
        self._pipe = pipe = _Pipe()
        weakref.finalize(self, pipe.close).atexit = False
        pipe.open()

    def fileno(self) -> int:
        return self._pipe.read

    def set(self) -> None:
        pipe = self._pipe
        with pipe.lock:
            if pipe.write >= 0:  # else it is closed, and no thread waits for it
                try:
                    os.write(pipe.write, b"!")
                except BlockingIOError:
                    pass  # full: already set

    def clear(self) -> None:
        try:
            while len(os.read(self._pipe.read, 4096)) == 4096:
                pass
        except BlockingIOError:
            pass

    async def wait(self, until: float | None) -> bool:
        return await BLOCKING.readable((self._pipe.read,), until)

    def close(self) -> None:
        self._pipe.close()

    @property
    def closed(self) -> bool:
        return self._pipe.write < 0


class _Dispatcher:
    """Daemon threads for users' callbacks, so that a slow callback delays neither a renewal nor other callbacks.

    A thread is started when none is idle, and ends after it has been idle for a while.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        # Re-entrant: a signal handler, or a finaliser, may dispatch on the thread that is in here.
        self._lock = threading.RLock()
        self._threads: set[object] = set()
        self._idle = 0

    def put(self, callback: Callable[[], Any]) -> None:
        self._queue.put(callback)
        with self._lock:
            if self._queue.qsize() > self._idle and len(self._threads) < _MOST_CALLBACK_THREADS:
                self._start()

    def _start(self) -> None:
        me = object()
        self._threads.add(me)
        try:
            start_daemon(lambda: self._run(me), "holdfast-callbacks")
        except BaseException:
            self._threads.discard(me)  # the next callback tries again
            raise

    def _run(self, me: object) -> None:
        while self._next(me):
            pass

    def _next(self, me: object) -> bool:
        with self._lock:
            self._idle += 1
        try:
            callback = self._queue.get(timeout=_IDLE_CALLBACK_THREAD)
        except queue.Empty:
            callback = None
        with self._lock:
            self._idle -= 1
            if callback is None and self._queue.empty():
                self._threads.discard(me)
                return False
        if callback is not None:
            _call(callback)
        return True


def _call(callback: Callable[[], Any]) -> None:
    try:
        callback()
    except BaseException:  # also SystemExit: it must not end a thread that other callbacks wait for
        _log.exception("an on_lost callback raised")


class BlockingRuntime:
    """Threads and real time."""

    def __init__(self) -> None:
        self._dispatcher = _Dispatcher()

    callers_hang_alone = True
    switches_threads = True
    now = staticmethod(clock.now)

    caller = staticmethod(callers.current_caller)

    def at_home(self) -> bool:
        return True

    def describer(self, label: str | None) -> Callable[[], bytes]:
        # Not updated after a fork: the child's clients open again, with describers of their own.
        running = _OfThread(Description(label))
        return lambda: running.text

    async def sleep_until(self, when: float) -> None:
        while (left := _left(when)) > 0:
            select.select((), (), (), left)

    def event(self) -> BlockingEvent:
        return BlockingEvent()

    def wakeup(self) -> BlockingWakeup:
        return BlockingWakeup()

    async def readable(self, filenos: Sequence[int], until: float | None) -> bool:
        poll = select.poll()
        for fileno in filenos:
            poll.register(fileno, select.POLLIN)
        while True:
            left = _left(until)
            if poll.poll(max(0.0, left) * 1000.0):
                return True
            if left <= 0:
                return False

    def spawn(self, main: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        start_daemon(lambda: run(main()), name)

    def dispatch(self, callback: Callable[[], Any]) -> None:
        self._dispatcher.put(callback)

    def after_fork_in_child(self) -> None:
        self._dispatcher = _Dispatcher()  # its threads and its lock stayed in the parent
        callers.after_fork_in_child()


BLOCKING: Final = BlockingRuntime()
