"""``Monitor`` and ``AsyncMonitor``, and ``synchronized``, which makes a method one of their operations."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Hashable
from typing import Any, ClassVar, Final, TypeVar

from holdfast._core import operators
from holdfast._core.core import Core
from holdfast._core.policy import Policy
from holdfast._runtime.blocking import run
from holdfast._runtime.callers import current_caller
from holdfast.aio import AsyncClient, AsyncLock
from holdfast.base_client import BaseClient
from holdfast.client import Client, Lock
from holdfast.engines.registers import MONITOR, RegisterKey, Registers
from holdfast.errors import UsageError
from holdfast.lease import NotPortable
from holdfast.primitives.monitor.conditions import AsyncMonitorCondition, MonitorCondition
from holdfast.primitives.monitor.opened import Opened, Opening
from holdfast.primitives.monitor.state import Schema
from holdfast.primitives.monitor.variables import checks_of, shared_names
from holdfast.primitives.shared_state import check_registers

F = TypeVar("F", bound=Callable[..., Any])

MAX_BYTES: Final = 256 * 1024
_MARK: Final = "_holdfast_synchronized"
_SCHEMA: Final = "_holdfast_schema"
_NO_VALUE: Final = object()


class _Variable:
    """A shared variable, in its class: it can be used inside an operation only."""

    def __init__(self, name: str, initial: Any) -> None:
        self._name = name
        self.initial = initial

    def __get__(self, monitor: BaseMonitor | None, owner: type) -> Any:
        return self if monitor is None else monitor._opened(self._name).values[self._name]

    def __set__(self, monitor: BaseMonitor, value: Any) -> None:
        monitor._opened(self._name).values[self._name] = value

    def __delete__(self, monitor: BaseMonitor) -> None:
        raise UsageError(f"{self._name} is a shared variable of {monitor!r} and cannot be deleted")


class BaseMonitor(NotPortable):
    """What Monitor and AsyncMonitor share."""

    _remedy = "pass the URL and the name, and make it there"
    _asynchronous: ClassVar[bool]
    _condition_kind: ClassVar[Any]
    _client: BaseClient

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if cls.__module__ == __name__:
            return
        for name, value in vars(cls).items():
            if getattr(value, _MARK, cls._asynchronous) != cls._asynchronous:
                wanted = "async def" if cls._asynchronous else "def"
                raise UsageError(
                    f"{cls.__name__}.{name} is synchronized: in this kind of monitor, it is to be {wanted}"
                )
        for name in shared_names(cls):
            initial = vars(cls).get(name, _NO_VALUE)
            if initial is _NO_VALUE:
                raise UsageError(f"{cls.__name__}.{name} has no initial value: give it one, such as {name} = None")
            setattr(cls, name, _Variable(name, initial))

    def __init__(self, client: BaseClient, name: str, kind: type, max_bytes: Any) -> None:
        if not issubclass(type(client), kind):
            raise UsageError(f"{type(self).__name__} needs a {kind.__name__}, not a {type(client).__name__}")
        check_registers(client, type(self).__name__, name)
        if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 2:
            raise UsageError(f"max_bytes is {max_bytes!r}: give the largest size of the state, in bytes")
        self._client = client
        self.__max_bytes = max_bytes
        self.__schema = _schema_of(type(self))
        self.__open: dict[Hashable, Opened] = {}  # what each caller that is in an operation uses
        self.__name = name

    @property
    def name(self) -> str:
        """The monitor's name, which is also that of its lock."""
        return self.__name

    def _opened(self, what: str) -> Opened:
        """The variables, inside an operation."""
        opened = self.__open.get(current_caller())
        if opened is None:
            raise UsageError(
                f"{type(self).__name__}.{what} can be used inside a @synchronized method only; snapshot() reads the "
                "variables from outside",
                name=self.__name,
            )
        if not opened.hold.held:
            raise opened.hold.loss()
        return opened

    def _loading(self, policy: Policy) -> Policy:
        """The policy of its lock: with each grant the engine loads the state, if it can."""
        self.__key = RegisterKey(policy.key, MONITOR, durable=True)
        return dataclasses.replace(policy, register=self.__key)

    def _operation(self, lease: Any) -> _Operation:
        opening = Opening(lease._hold.core, lease._hold, self.__key, self.__schema, self.__max_bytes)
        return _Operation(self.__open, opening)

    async def _snapshot(self, core: Core) -> dict[str, Any]:
        registers: Registers | None = core.session.registers
        assert registers is not None
        cell = await operators.ask(core, lambda timeout: registers.peek(self.__key, timeout), self.__name)
        return self.__schema.decode(cell.value, self.__name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.__name!r} of {self._client!r}>"


def _schema_of(cls: type) -> Schema:
    """Made with the first monitor of the class: an annotation may name what is defined after it."""
    found: Schema | None = vars(cls).get(_SCHEMA)
    if found is not None:
        return found
    initial = {
        name: value.initial
        for each in reversed(cls.__mro__)
        for name, value in vars(each).items()
        if isinstance(value, _Variable)
    }
    schema = Schema(checks_of(cls, initial), initial)
    setattr(cls, _SCHEMA, schema)
    return schema


class _Operation:
    """One call of an operation, from the grant of the lock to its release."""

    def __init__(self, open_by: dict[Hashable, Opened], opening: Opening) -> None:
        self._open_by = open_by
        self._opening = opening
        self._caller = current_caller()
        self._before = open_by.get(self._caller)

    async def begin(self) -> None:
        self._open_by[self._caller] = await self._opening.begin()

    async def end(self) -> None:
        await self._opening.end()

    def fail(self) -> None:
        self._opening.fail()

    def close(self) -> None:
        self._opening.close()
        if self._before is None:
            self._open_by.pop(self._caller, None)
        else:
            self._open_by[self._caller] = self._before


class Monitor(BaseMonitor):
    """Shared variables and the only operations on them, for the callers of all processes.

    Subclass it: annotated names with initial values are the variables (JSON types); methods with ``@synchronized`` are
    the operations, one at a time; ``holdfast.condition()`` declares conditions to wait for. An operation that raises
    changes nothing.
    """

    _asynchronous = False
    _condition_kind = MonitorCondition

    def __init__(self, client: Client, name: str, *, max_bytes: int = MAX_BYTES, **options: Any) -> None:
        """The monitor ``name``. No I/O. ``options`` as those of ``client.lock``, except ``reentrant``."""
        super().__init__(client, name, Client, max_bytes)
        self._client: Client = client
        self.__lock = Lock(client, self._loading(client.lock(name, **options)._policy))

    def snapshot(self) -> dict[str, Any]:
        """The variables as they are stored at present, without waiting for the operation that may be under way."""
        return run(self._snapshot(self._client._open()))

    def _run(self, function: Callable[..., Any], arguments: Any, keywords: Any) -> Any:
        with self.__lock.acquire(timeout=self.__lock._policy.timeout) as lease:
            operation = self._operation(lease)
            try:
                run(operation.begin())
                result = function(self, *arguments, **keywords)
                run(operation.end())
            except BaseException:
                operation.fail()
                raise
            finally:
                operation.close()
        return result


class AsyncMonitor(BaseMonitor):
    """As Monitor, for an AsyncClient: its operations are coroutine functions."""

    _asynchronous = True
    _condition_kind = AsyncMonitorCondition

    def __init__(self, client: AsyncClient, name: str, *, max_bytes: int = MAX_BYTES, **options: Any) -> None:
        """The monitor ``name``. No I/O. ``options`` as those of ``client.lock``, except ``reentrant``."""
        super().__init__(client, name, AsyncClient, max_bytes)
        self._client: AsyncClient = client
        self.__lock = AsyncLock(client, self._loading(client.lock(name, **options)._policy))

    async def snapshot(self) -> dict[str, Any]:
        """The variables as they are stored at present, without waiting for the operation that may be under way."""
        return await self._snapshot(self._client._open())

    async def _run(self, function: Callable[..., Any], arguments: Any, keywords: Any) -> Any:
        async with await self.__lock.acquire(timeout=self.__lock._policy.timeout) as lease:
            operation = self._operation(lease)
            try:
                await operation.begin()
                result = await function(self, *arguments, **keywords)
                await operation.end()
            except BaseException:
                operation.fail()
                raise
            finally:
                operation.close()
        return result


def synchronized(function: F) -> F:
    """Make a method of a Monitor, or a coroutine method of an AsyncMonitor, an operation on its variables."""
    if (
        not inspect.isfunction(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    ):
        raise UsageError("synchronized is for methods: functions and coroutine functions, not generators")
    asynchronous = inspect.iscoroutinefunction(function)

    @functools.wraps(function)
    def operation(self: Any, /, *arguments: Any, **keywords: Any) -> Any:
        return _checked(self, function, asynchronous)._run(function, arguments, keywords)

    @functools.wraps(function)
    async def async_operation(self: Any, /, *arguments: Any, **keywords: Any) -> Any:
        return await _checked(self, function, asynchronous)._run(function, arguments, keywords)

    wrapped: Any = async_operation if asynchronous else operation
    setattr(wrapped, _MARK, asynchronous)
    return wrapped  # type: ignore[no-any-return]


def _checked(monitor: Any, function: Callable[..., Any], asynchronous: bool) -> Any:
    if not isinstance(monitor, AsyncMonitor if asynchronous else Monitor):
        raise UsageError(f"{function.__qualname__} is synchronized, so it must be a method of a monitor of its kind")
    return monitor
