"""The conditions of a monitor: ``not_empty = holdfast.condition()`` in its class."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from holdfast._config.durations import Duration, check_timeout
from holdfast._runtime.blocking import run
from holdfast.primitives import condition_queue
from holdfast.primitives.condition import check_name, checked_count, satisfied
from holdfast.primitives.monitor.opened import Opened

if TYPE_CHECKING:
    from holdfast.primitives.monitor.operations import AsyncMonitor, BaseMonitor, Monitor

T = TypeVar("T")


class _Bound:
    """A condition of one monitor."""

    __slots__ = ("_monitor", "_name")

    def __init__(self, monitor: BaseMonitor, name: str) -> None:
        self._monitor = monitor
        self._name = name

    def _opened(self) -> Opened:
        return self._monitor._opened(self._name)

    async def _wait(self, timeout: float | None) -> bool:
        return await self._opened().wait(self._name, timeout)

    def _notify(self, count: int | None) -> None:
        register = self._opened().register
        register.apply(condition_queue.notify(register.queue, self._name, count, register.mine))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r} of {self._monitor!r}>"


class MonitorCondition(_Bound):
    """A condition of a monitor, inside an operation."""

    __slots__ = ()

    def wait(self, timeout: Duration | None = None) -> bool:
        """Store the variables, let other operations run until a notify, and load the variables: as Condition.wait."""
        return run(self._wait(check_timeout(timeout)))

    def wait_for(self, predicate: Callable[[], T], timeout: Duration | None = None) -> T:
        """Wait until ``predicate()`` is true, and return its value; a false one if ``timeout`` has passed."""
        now = self._opened().hold.core.front.now
        return run(satisfied(now, predicate, check_timeout(timeout), self._wait))

    def notify(self, n: int = 1) -> None:
        """Wake ``n`` waiters when the operation stores the variables."""
        self._notify(checked_count(n))

    def notify_all(self) -> None:
        """Wake all waiters when the operation stores the variables."""
        self._notify(None)


class AsyncMonitorCondition(_Bound):
    """A condition of an async monitor, inside an operation."""

    __slots__ = ()

    async def wait(self, timeout: Duration | None = None) -> bool:
        """Store the variables, let other operations run until a notify, and load the variables: as Condition.wait."""
        return await self._wait(check_timeout(timeout))

    async def wait_for(self, predicate: Callable[[], T], timeout: Duration | None = None) -> T:
        """Wait until ``predicate()`` is true, and return its value; a false one if ``timeout`` has passed."""
        now = self._opened().hold.core.front.now
        return await satisfied(now, predicate, check_timeout(timeout), self._wait)

    async def notify(self, n: int = 1) -> None:
        """Wake ``n`` waiters when the operation stores the variables."""
        self._notify(checked_count(n))

    async def notify_all(self) -> None:
        """Wake all waiters when the operation stores the variables."""
        self._notify(None)


class condition:  # noqa: N801 -- used as a declaration
    """Declares a condition of a Monitor or AsyncMonitor: ``not_empty = holdfast.condition()``."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = check_name(name)

    @overload
    def __get__(self, monitor: None, owner: type) -> condition: ...
    @overload
    def __get__(self, monitor: Monitor, owner: type) -> MonitorCondition: ...
    @overload
    def __get__(self, monitor: AsyncMonitor, owner: type) -> AsyncMonitorCondition: ...
    def __get__(self, monitor: Any, owner: type) -> Any:
        if monitor is None:
            return self
        return monitor._condition_kind(monitor, self._name)
