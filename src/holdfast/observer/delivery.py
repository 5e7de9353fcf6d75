"""Delivers events from a queue to the observer, on one thread for each open client that has an observer.

Reporting an event must not delay a lock. So it is one ``append`` to a queue, safe under any lock, in a signal handler
and in ``__del__``. The observer runs on the thread here.

References: the observer may refer to the client, and a running thread must not keep the client alive. So only the
client refers to the observer, through its :class:`ObserverCell`; the thread gets it only while it delivers.
"""

from __future__ import annotations

import _thread
import inspect
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from holdfast._runtime import base
from holdfast._runtime.threads import start_daemon
from holdfast.errors import UsageError
from holdfast.observer.events import Dropped, Event, Observer

_log: Final = logging.getLogger("holdfast.observer")

#: Events that may be queued; further ones are dropped and counted.
CAPACITY: Final = 10_000
#: Seconds between two deliveries, at least: waking a thread costs more than a lock.
GATHER: Final = 0.01
#: How long ``close()``, and the interpreter's exit, wait until the observer has received all queued events.
FLUSH_WITHIN: Final = 0.5
#: Different failures of an observer that are logged.
_MOST_LOGGED: Final = 100

#: Builds the event, on the observer's thread.
Record = Callable[[], Event]


class ObserverCell:
    """The client's reference to its observer.

    When the client becomes garbage while leases of it live on, the open deliveries keep the observer until they end.
    (An observer that refers to the client keeps it alive for that time.)
    """

    __slots__ = ("__weakref__", "_deliveries", "observer")

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self._deliveries: list[Delivery] = []

    def attach(self, delivery: Delivery) -> None:
        self._deliveries = [each for each in self._deliveries if not each.closing]
        self._deliveries.append(delivery)

    def __del__(self) -> None:
        for delivery in self._deliveries:
            delivery.adopt(self.observer)


class _Gate:
    """Ends a sleep. A raw lock: opening it never waits, and may be interrupted by a signal anywhere."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._lock.acquire()

    def open(self) -> None:
        if self._lock.locked():
            try:
                self._lock.release()
            except RuntimeError:
                pass  # another thread has opened it meanwhile

    def wait(self, timeout: float = -1) -> None:
        """Wait until it is opened, or return if it was opened since the last ``wait``."""
        self._lock.acquire(timeout=timeout)


class Delivery:
    """The queue and the thread of one open client."""

    def __init__(self, engine: str, cell: ObserverCell, stopped: base.Event) -> None:
        self.engine: Final = engine
        self.queue: Final[deque[Record]] = deque()
        self.stopped: Final = stopped
        self.closing = False
        self._cell = weakref.ref(cell)
        self._adopted: Observer | None = None
        self._news = _Gate()
        self._hurry = _Gate()
        self._missed = 0
        self._missed_reported = 0
        self._thread: int | None = None
        self._logged: set[tuple[str, type[BaseException]]] = set()

    def start(self) -> bool:
        """Start the thread. False if that is impossible: then the client reports no events, but still locks."""
        try:
            start_daemon(self._run, "holdfast-observer")
        except RuntimeError:
            self.closing = True
            _log.warning("no thread could be started: the observer gets no events of this client")
            return False
        return True

    # -- called by the core, from any thread -----------------------------------------------------------------------

    def has_room(self) -> bool:
        """Whether one more event may be queued. If not, it is counted as dropped."""
        if len(self.queue) < CAPACITY:
            return True
        self._missed += 1
        return False

    def put(self, record: Record) -> None:
        """Queue one event."""
        if self.has_room():
            self.queue.append(record)
            self._news.open()

    def wake(self) -> None:
        """An event was queued: wake the thread."""
        self._news.open()

    def adopt(self, observer: Observer) -> None:
        """The client is garbage: keep its observer until this delivery ends."""
        if not self.stopped.is_set():
            self._adopted = observer
            self._news.open()

    def shut(self) -> None:
        """Have the thread deliver what is queued and then end. Does not wait for it."""
        self.closing = True
        self._hurry.open()
        self._news.open()

    async def flush(self, until: float) -> None:
        """Wait until the thread has ended, unless the observer itself called this."""
        if self._thread != threading.get_ident():
            await self.stopped.wait(until)

    # -- its own thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._thread = threading.get_ident()
        try:
            while self._round():
                pass
        finally:
            self._adopted = None
            self.stopped.set()

    def _round(self) -> bool:
        self._news.wait()
        closing = self.closing  # read before the queue, so that what was queued before closing is delivered
        delivered = self._deliver()
        if closing:
            # The garbage collector clears weak references to the client before it runs finalisers: the cell's
            # finaliser may still hand the observer over.
            until = time.monotonic() + FLUSH_WITHIN
            while not delivered and (left := until - time.monotonic()) > 0:
                self._news.wait(left)
                delivered = self._deliver()
            return False
        self._hurry.wait(GATHER)
        return True

    def _deliver(self) -> bool:
        """Deliver what is queued. False if there is no observer at present.

        A function of its own, so that the thread does not refer to the observer while it sleeps.
        """
        cell = self._cell()
        observer = self._adopted if cell is None else cell.observer
        del cell
        if observer is None:
            return False  # the client is becoming garbage: its cell's finaliser hands the observer over
        for _ in range(len(self.queue)):  # bounded: an observer that uses locks causes more events
            self._call(observer, self.queue.popleft())
        missed = self._missed - self._missed_reported
        if missed:
            if not self._missed_reported:
                _log_safely(
                    logging.WARNING, "the observer is too slow: %d events were dropped; further drops are only counted",
                    missed,
                )  # fmt: skip
            self._missed_reported += missed
            self._call(observer, lambda: Dropped(at=time.time(), engine=self.engine, count=missed))
        return True

    def _call(self, observer: Observer, record: Record) -> None:
        event = record()
        try:
            result = observer(event)
            if inspect.iscoroutine(result):
                result.close()
                raise TypeError("the observer returned a coroutine: it is called on a thread, and must be a function")
        except BaseException as error:  # also SystemExit: the thread must deliver the remaining events
            self._failed(event, error)

    def _failed(self, event: Event, error: BaseException) -> None:
        """Log it once for each kind of event and error: an observer that always fails must not flood the log."""
        kind = (event.kind, type(error))
        if kind not in self._logged and len(self._logged) < _MOST_LOGGED:
            self._logged.add(kind)
            _log_safely(
                logging.ERROR, "the observer raised %s on a %r event; this is logged once", type(error).__name__,
                event.kind, error=error,
            )  # fmt: skip


def _log_safely(level: int, message: str, *args: object, error: BaseException | None = None) -> None:
    """Log, and ignore what a log handler or filter raises: the thread must deliver the remaining events."""
    with suppress(BaseException):
        _log.log(level, message, *args, exc_info=error)


def check_observer(observer: object) -> None:
    """TypeError for what cannot be called; UsageError for what must be awaited."""
    if not callable(observer):
        raise TypeError(f"observer is a {type(observer).__name__}: give a function that takes an event")
    if any(
        is_async(each)
        for is_async in (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
        for each in (observer, getattr(observer, "__call__", None))  # noqa: B004 -- of an object with async __call__
    ):
        raise UsageError(
            "observer is a coroutine function, and it is called on a thread of its own, for async clients too: give a "
            "plain function; loop.call_soon_threadsafe() brings an event to the loop"
        )
