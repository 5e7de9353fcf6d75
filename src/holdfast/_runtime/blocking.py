"""The blocking runtime: awaitables that never suspend, and the one-step driver that runs a coroutine on them."""

from __future__ import annotations

import logging
import os
import queue
import select
import threading
import types
from collections.abc import Callable, Coroutine, Generator, Hashable, Sequence
from typing import Any, Final, TypeVar

from holdfast._runtime import clock
from holdfast._runtime.description import describe

T = TypeVar("T")
_log: Final = logging.getLogger("holdfast")

# A wait on CLOCK_MONOTONIC does not notice a suspend: sleep in slices, re-reading the clock of belief.
_SLICE: Final = 1.0


def _left(until: float | None) -> float:
    return _SLICE if until is None else min(_SLICE, until - clock.now())


class _Thread(threading.local):
    """What belongs to one thread: its description, and a fresh object that identifies it.

    (An ident, or a Thread object, may come back after the thread's end.)
    """

    def __init__(self) -> None:
        self.identity = object()
        self.description = describe()


_thread = _Thread()


class _Driver:
    """Runs one coroutine after another inside one generator.

    A coroutine that ends under ``yield from`` hands its result over directly; driven by ``send`` alone it would raise
    StopIteration, which costs several microseconds for every lock.
    """

    __slots__ = ("_generator", "result", "send")

    def __init__(self) -> None:
        self.result: Any = None
        self._generator = self._run()
        next(self._generator)
        self.send = self._generator.send

    @types.coroutine  # allows it to "yield from" coroutines
    def _run(self) -> Generator[object, Coroutine[Any, Any, Any], None]:
        done = self  # what it yields when a coroutine has ended; anything else comes from an awaitable that suspends
        while True:
            self.result = yield from (yield done)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine of the core to its end on the calling thread. One step: blocking awaitables never suspend."""
    try:
        driver = _idle_drivers.pop()  # list operations are atomic: one driver is never used by two at a time
    except IndexError:
        driver = _Driver()
    if driver.send(coroutine) is not driver:
        coroutine.close()
        raise RuntimeError("internal error in holdfast: the blocking runtime was asked to suspend")
    result: T = driver.result
    driver.result = None
    _idle_drivers.append(driver)  # not after an exception, which ends the generator
    return result


_idle_drivers: Final[list[_Driver]] = []


class BlockingEvent:
    """A set-once flag, and a gate that is shut until it is set.

    The flag is the truth; the gate, one raw lock, only ends a sleep early. So a signal handler may raise anywhere in
    here. (Inside threading.Condition it would leave a lock taken for ever, or not taken where it is given back, and the
    caller would see that error in place of its KeyboardInterrupt.)
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
                # For the next who waits. If a signal comes in between, they look at the flag after their slice.
                self._open()
        return True

    def _open(self) -> None:
        try:
            self._gate.release()
        except RuntimeError:
            pass  # somebody else has opened it


class BlockingWakeup:
    """A bell made of a pipe: ringing it is one non-blocking write, so it is safe in ``__del__`` and signal handlers."""

    __slots__ = ("_lock", "_read", "_write")

    def __init__(self) -> None:
        # Re-entrant, so that ``__del__`` may ring while its own thread is in here; it keeps ``set`` from writing to a
        # descriptor that ``close`` has just given back to the system.
        self._lock = threading.RLock()
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def fileno(self) -> int:
        return self._read

    def set(self) -> None:
        with self._lock:
            if self._write >= 0:  # closed: nobody sleeps here any more
                try:
                    os.write(self._write, b"!")
                except BlockingIOError:
                    pass  # full: it is ringing already

    def clear(self) -> None:
        try:
            while len(os.read(self._read, 4096)) == 4096:
                pass
        except BlockingIOError:
            pass

    async def wait(self, until: float | None) -> bool:
        return await BLOCKING.readable((self._read,), until)

    def close(self) -> None:
        with self._lock:
            read, write, self._read, self._write = self._read, self._write, -1, -1
            for fd in (read, write):
                if fd >= 0:
                    os.close(fd)

    __del__ = close


class _Dispatcher:
    """One lazy daemon thread for users' callbacks, so that a slow ``on_lost`` never delays a renewal."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._running = False

    def put(self, callback: Callable[[], Any]) -> None:
        self._queue.put(callback)
        with self._lock:
            if not self._running:
                threading.Thread(target=self._run, name="holdfast-callbacks", daemon=True).start()
                self._running = True  # not before: if Ctrl-C strikes in between, the next callback tries again

    def _run(self) -> None:
        while True:
            try:
                callback = self._queue.get(timeout=1.0)
            except queue.Empty:
                with self._lock:
                    if self._queue.empty():
                        self._running = False
                        return
                continue
            try:
                callback()
            except Exception:
                _log.exception("an on_lost callback raised")


class BlockingRuntime:
    """Threads and real time."""

    def __init__(self) -> None:
        self._dispatcher = _Dispatcher()

    now = staticmethod(clock.now)

    def caller(self) -> Hashable:
        return _thread.identity

    def description(self) -> bytes:
        return _thread.description

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
        threading.Thread(target=lambda: run(main()), name=name, daemon=True).start()

    def dispatch(self, callback: Callable[[], Any]) -> None:
        self._dispatcher.put(callback)

    def after_fork_in_child(self) -> None:
        global _thread
        self._dispatcher = _Dispatcher()  # its thread and its lock stayed in the parent
        _thread = _Thread()  # another pid


BLOCKING: Final = BlockingRuntime()
