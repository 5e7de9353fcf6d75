"""The runtime port: time, sleep and wake-ups for code that is written once, for sync and async.

All code that does I/O is ``async def`` and waits only through this port. On the *blocking* runtime an await never
suspends: it blocks the calling thread. On *asyncio* it suspends the task. The *simulated* runtime of the tests has a
virtual clock.

Two kinds of signals between threads and tasks:

* :class:`Event` is set once. Callers wait for it on their own runtime.
* :class:`Wakeup` can be set and cleared many times. It wakes the watchdog thread.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Hashable, Sequence
from typing import Any, Final, Protocol, TypeVar, cast

T = TypeVar("T")


class Done:
    """In the place of the rest of a call that is over: to be awaited like one."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, None]:
        return _EXHAUSTED


_EXHAUSTED: Final = cast("Generator[Any, Any, None]", iter(()))
DONE: Final = Done()
#: The rest of a call. No variable of its caller must have it: see ``_core/operations.py``.
Rest = Coroutine[Any, Any, None] | Done


class Event(Protocol):
    """A flag that is set once. ``set`` may be called from any thread; any number of callers may wait."""

    def set(self) -> None: ...

    def is_set(self) -> bool: ...

    async def wait(self, until: float | None) -> bool:
        """True once set; False at ``until`` (None: for ever)."""


class Wakeup(Protocol):
    """Wakes one sleeping thread. ``set`` is safe from any thread, from a signal handler and from ``__del__``."""

    def set(self) -> None: ...

    def clear(self) -> None: ...

    async def wait(self, until: float | None) -> bool:
        """True if it was set before ``until``. Does not clear it."""

    def close(self) -> None: ...

    @property
    def closed(self) -> bool: ...


class Runtime(Protocol):
    """Blocking, asyncio or simulated."""

    #: One caller may hang while others run: threads, and not the tasks of one loop.
    callers_hang_alone: bool
    #: To run a caller that was woken takes a switch of threads, and not only a turn of a loop.
    switches_threads: bool

    def now(self) -> float:
        """Seconds on a clock that counts system suspend. All deadlines are on this clock."""

    def caller(self) -> Hashable:
        """The running caller, see ``callers``. Never equal to a caller that has ended.

        Only *identifies* the caller, for re-entrancy. The lease decides ownership.
        """

    def at_home(self) -> bool:
        """Whether the caller may wait on this runtime; on asyncio, whether it runs in the same loop. False if that loop
        is closed; UsageError if it is another loop that is still open."""

    def describer(self, label: str | None) -> Callable[[], bytes]:
        """A function that describes the running caller of one client: a JSON object with host, pid, program, the
        thread's or task's name as ``thread``, and the client's ``label`` if it has one."""

    async def sleep_until(self, when: float) -> None: ...

    def event(self) -> Event: ...

    def wakeup(self) -> Wakeup: ...

    async def readable(self, filenos: Sequence[int], until: float | None) -> bool:
        """Wait until one of the descriptors can be read: True; False at ``until``. Not on the simulated runtime."""

    def spawn(self, main: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Run ``main()`` in the background: a daemon thread, a task, a simulated task. Safe from any thread."""

    def dispatch(self, callback: Callable[[], Any]) -> None:
        """Run a user's callback soon, where it delays no other caller; log what it raises. Safe from any thread."""
