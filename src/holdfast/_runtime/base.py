"""The runtime port: time, sleep and signals for code that is written once.

Everything that talks is ``async def`` against this. On the *blocking* runtime nothing ever suspends: an await blocks
the calling thread. On *asyncio* it is what it looks like. The *simulated* runtime has a virtual clock.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Event(Protocol):
    """A flag that is set once. ``set`` may be called from any thread; any number may wait."""

    def set(self) -> None: ...

    def is_set(self) -> bool: ...

    async def wait(self, until: float | None) -> bool:
        """True once set; False at ``until`` (None: for ever)."""


class Wakeup(Protocol):
    """A bell for one sleeper. ``set`` is safe from any thread, from a signal handler and from ``__del__``."""

    def set(self) -> None: ...

    def clear(self) -> None: ...

    async def wait(self, until: float | None) -> bool:
        """True if the bell rang before ``until``. Does not clear it."""

    def close(self) -> None: ...

    @property
    def closed(self) -> bool: ...


class Runtime(Protocol):
    """Blocking, asyncio or simulated."""

    def now(self) -> float:
        """Seconds on a clock that counts system suspend. The only clock that belief is measured by."""

    def caller(self) -> Hashable:
        """The running caller, see ``callers``. Never equal to one that has ended.

        Only *identifies* the caller, for re-entrancy. Ownership is with the handle.
        """

    def at_home(self) -> bool:
        """Whether the caller may wait here: on asyncio, in the same loop. False if that loop is closed; UsageError if
        it is another one that is still open."""

    def describer(self, label: str | None) -> Callable[[], bytes]:
        """What describes the running caller of one client each time it is called: a JSON object with host, pid,
        program, the thread's or task's name as ``thread``, and the client's ``label`` if it has one."""

    async def sleep_until(self, when: float) -> None: ...

    def event(self) -> Event: ...

    def wakeup(self) -> Wakeup: ...

    async def readable(self, filenos: Sequence[int], until: float | None) -> bool:
        """Wait until one of the descriptors can be read: True; False at ``until``. Not on the simulated runtime."""

    def spawn(self, main: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Run ``main()`` in the background: a daemon thread, a task, a simulated task. Safe from any thread."""

    def dispatch(self, callback: Callable[[], Any]) -> None:
        """Run a user's callback soon, where it can delay nobody else; log what it raises. Safe from any thread."""
