"""What ``locked`` does: calls with and without parentheses, the choice of client, the kinds of objects it decorates."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import FrameType, FunctionType
from typing import Any, Final, cast

from holdfast.decorator import options
from holdfast.decorator.keys import compile_key
from holdfast.decorator.locks import Locks
from holdfast.decorator.methods import LockedMethod, is_method
from holdfast.decorator.wrapping import Skips, kind_of, wrap
from holdfast.errors import UsageError

#: Returns the function that finds the client of a call. Its argument: whether the decorated function is async.
ClientChooser = Callable[[bool], Callable[[], Any]]

_ASYNC: Final = ("coroutine", "async generator")
#: The code objects of functions made by ``contextlib.contextmanager`` and ``asynccontextmanager``.
_CONTEXT_MANAGERS: Final[Collection[Any]] = [
    make(lambda: None).__code__ for make in cast("tuple[Any, Any]", (contextmanager, asynccontextmanager))
]


def locked(
    choose: ClientChooser, client: Any, first: Any, key: Any, on_busy: Any, default: Any, given: Mapping[str, Any]
) -> Any:
    """The decorator for these options; without parentheses (``first`` is the function), the decorated function.

    ``client`` is the fixed client, whose engine checks the policy now, or None. Must be called directly by the public
    function, whose caller's frame is examined.
    """
    if first is not None and key is not None:
        raise UsageError("the key is given twice, by position and as key=; remove one of them")
    bare = key is None and _is_bare(first, on_busy, given, sys._getframe(2))
    key = first if key is None else key
    plan = options.check(on_busy, default, given)
    if bare:
        return _decorate(key, choose, client, None, plan)

    def decorator(function: Any = None, /, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs or not (callable(function) or isinstance(function, (classmethod, staticmethod))):
            raise UsageError(_not_a_function(key, function))
        return _decorate(function, choose, client, key, plan)

    return decorator


def _is_bare(first: Any, on_busy: str, given: Mapping[str, Any], frame: FrameType) -> bool:
    """Whether ``first`` is the function to lock: ``@client.locked`` without parentheses.

    A key may be a callable, too. A lambda, an object, or a function beside other options is a key. A function whose
    name already exists where ``locked`` is called is not being defined there, so it may be the key or the function to
    lock. That is a UsageError: a wrong guess would lock the wrong thing.
    """
    if isinstance(first, (classmethod, staticmethod)):
        return True
    if not isinstance(first, (FunctionType, LockedMethod)) or given or on_busy != "wait":
        return False
    name = first.__name__
    if name == "<lambda>":
        return False
    if frame.f_locals.get(name) is first or frame.f_globals.get(name) is first:
        raise UsageError(
            f"locked({name}) may mean two things: write locked(key={name}) if {name} makes the key, or "
            f"locked()({name}) to lock {name} itself"
        )
    return True


def _not_a_function(key: Any, function: Any) -> str:
    if callable(key):
        return f"locked() took {key!r} for the key; to lock it, write locked()({getattr(key, '__name__', '…')})"
    return f"locked(...) decorates a function, not {type(function).__qualname__}"


def _decorate(function: Any, choose: ClientChooser, client: Any, key: Any, plan: options.Plan) -> Any:
    if isinstance(function, staticmethod):
        return staticmethod(_locked_function(function.__func__, choose, client, key, plan))
    if isinstance(function, classmethod):
        return LockedMethod(_locked_function(function.__func__, choose, client, key, plan), "class")
    if inspect.isclass(function):
        raise UsageError(f"locked() decorates functions; {function.__qualname__} is a class: decorate its methods")
    wrapper = _locked_function(function, choose, client, key, plan)
    return LockedMethod(wrapper) if is_method(wrapper) else wrapper


def _locked_function(
    function: Callable[..., Any], choose: ClientChooser, client: Any, key: Any, plan: options.Plan
) -> Callable[..., Any]:
    """``function`` wrapped in its lock, with ``lock_for`` and ``skipped``."""
    if not callable(function):
        raise UsageError(f"locked() decorates functions; {type(function).__qualname__} is not callable")
    if getattr(function, "__code__", None) in _CONTEXT_MANAGERS:
        raise UsageError(
            f"{function.__qualname__}() returns a context manager, whose block would run without the lock: put "
            "locked() below @contextmanager"
        )
    locks = Locks(choose(kind_of(function) in _ASYNC), compile_key(key, plan.prefix, function), plan)
    if client is not None:
        locks.check(client)
    skips = Skips(getattr(function, "__qualname__", type(function).__qualname__), plan)
    wrapper: Any = wrap(function, locks, plan, skips)

    def lock_for(*args: Any, **kwargs: Any) -> Any:
        """The lock of a call with these arguments, with the same policy. No I/O."""
        return locks.of(args, kwargs)

    wrapper.lock_for = lock_for
    wrapper.skipped = skips.count
    return wrapper  # type: ignore[no-any-return]


def of_sync_client(client: Any) -> ClientChooser:
    """Always ``client``; UsageError for an async function."""

    def choose(is_async: bool) -> Callable[[], Any]:
        if is_async:
            raise UsageError(
                "this client is sync, and the function is async: it would block the event loop while it waits; use "
                "locked() of holdfast.aio.connect(...)"
            )
        return lambda: client

    return choose


def of_async_client(client: Any) -> ClientChooser:
    """Always ``client``; UsageError for a function that cannot await."""

    def choose(is_async: bool) -> Callable[[], Any]:
        if not is_async:
            raise UsageError(
                "this client is async, and the function is not: it cannot await the lock; use locked() of "
                "holdfast.connect(...), or make it an async def"
            )
        return lambda: client

    return choose
