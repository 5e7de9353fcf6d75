"""Wraps each of the four kinds of functions in a function of the same kind, since frameworks examine the kind.

Each wrapper uses ``with lock:``, which releases the lock however the block ends: by an exception, by a signal between
any two instructions, or when another thread closes the generator. A wrapper that called acquire and release itself
would have gaps.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from types import CoroutineType
from typing import Any, Final, Literal

from holdfast.decorator.generators import steps
from holdfast.decorator.locks import Locks
from holdfast.decorator.options import Plan
from holdfast.errors import AcquireTimeout, UsageError

_log: Final = logging.getLogger("holdfast.locked")

_counting: threading.RLock

Kind = Literal["function", "coroutine", "generator", "async generator"]


def kind_of(function: Callable[..., Any]) -> Kind:
    """The kind of ``function``; of a callable object, that of its ``__call__``."""
    looked_at: tuple[Any, ...] = (function,)
    if not inspect.isroutine(function) and not isinstance(function, functools.partial):
        looked_at = (function, getattr(function, "__call__", None))  # noqa: B004 -- the method is wanted, not whether
    if any(map(inspect.iscoroutinefunction, looked_at)):
        return "coroutine"
    if any(map(inspect.isasyncgenfunction, looked_at)):
        return "async generator"
    if any(map(inspect.isgeneratorfunction, looked_at)):
        return "generator"
    return "function"


def _renew_lock() -> None:
    global _counting
    _counting = threading.RLock()  # re-entrant: a signal handler may call a decorated function


_renew_lock()
os.register_at_fork(after_in_child=_renew_lock)  # a thread that does not exist in the child may hold it


class Skips:
    """Decides whether a call that found its lock busy is skipped; counts and logs skipped calls."""

    def __init__(self, called: str, plan: Plan) -> None:
        self._called = called
        self._plan = plan
        self._number = 0

    def default(self, busy: AcquireTimeout, *, inside: bool) -> Any:
        """The result of a skipped call. Raises ``busy`` if the call is not skipped.

        ``inside``: the error came out of the function itself, about another lock that it waited for.
        """
        if inside or self._plan.on_busy != "skip":
            raise busy
        with _counting:
            self._number += 1
        _log.info("%s() was skipped: lock %r is busy", self._called, busy.name)
        return self._plan.default

    def count(self) -> int:
        """How many calls were skipped in this process because the lock was busy."""
        return self._number


def wrap(function: Callable[..., Any], locks: Locks, plan: Plan, skips: Skips) -> Callable[..., Any]:
    """``function`` wrapped in its lock, as a function of the same kind."""
    makers = {
        "function": _function,
        "coroutine": _coroutine,
        "generator": _generator,
        "async generator": _async_generator,
    }
    wrapper = makers[kind_of(function)](function, locks, plan, skips)
    functools.update_wrapper(wrapper, function)
    for name in ("__module__", "__name__", "__qualname__"):  # a partial or an object lacks these; its function has them
        if not hasattr(function, name):
            named = getattr(function, "func", type(function))
            setattr(wrapper, name, getattr(named, name, wrapper.__name__))
    return wrapper


def _function(function: Callable[..., Any], locks: Locks, plan: Plan, skips: Skips) -> Callable[..., Any]:
    find, at_least = locks.of, plan.at_least
    if plan.on_busy != "skip" and not at_least:

        def locked(*args: Any, **kwargs: Any) -> Any:
            with find(args, kwargs):
                result = function(*args, **kwargs)
                if result.__class__ is CoroutineType:
                    raise _not_run(function, result)
                return result

        return locked

    def locked_with_options(*args: Any, **kwargs: Any) -> Any:
        lock, inside = find(args, kwargs), False
        try:
            with lock as lease:
                inside = True
                if at_least:
                    lease._keep_for(at_least)
                result = function(*args, **kwargs)
                if result.__class__ is CoroutineType:
                    raise _not_run(function, result)
                return result
        except AcquireTimeout as busy:
            return skips.default(busy, inside=inside)

    return locked_with_options


def _not_run(function: Callable[..., Any], coroutine: Any) -> UsageError:
    """For a plain function that returns a coroutine, which would run after the lock has been released."""
    coroutine.close()
    return UsageError(
        f"{getattr(function, '__qualname__', function)}() returned a coroutine, which would run without the lock; put "
        "locked() directly above the async def, below other decorators, or decorate an async def that awaits it"
    )


def _coroutine(function: Callable[..., Any], locks: Locks, plan: Plan, skips: Skips) -> Callable[..., Any]:
    find, at_least = locks.of, plan.at_least

    async def locked(*args: Any, **kwargs: Any) -> Any:
        lock, inside = find(args, kwargs), False
        try:
            async with lock as lease:
                inside = True
                if at_least:
                    lease._keep_for(at_least)
                return await function(*args, **kwargs)
        except AcquireTimeout as busy:
            return skips.default(busy, inside=inside)

    return locked


def _generator(function: Callable[..., Any], locks: Locks, plan: Plan, skips: Skips) -> Callable[..., Any]:
    def locked(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        lock, inside = locks.of(args, kwargs), False
        try:
            with lock as lease:
                inside = True
                if plan.at_least:
                    lease._keep_for(plan.at_least)
                return (yield from steps(function(*args, **kwargs), lease))
        except AcquireTimeout as busy:
            return skips.default(busy, inside=inside)

    return locked


def _async_generator(function: Callable[..., Any], locks: Locks, plan: Plan, skips: Skips) -> Callable[..., Any]:
    from holdfast.decorator.async_generators import AsyncSteps, released_at_the_end

    async def locked(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        lock = locks.of(args, kwargs)
        try:
            lease = await lock.acquire(timeout=lock._timeout)
        except AcquireTimeout as busy:
            skips.default(busy, inside=False)
            return
        async with released_at_the_end(lease):
            if plan.at_least:
                lease._keep_for(plan.at_least)
            async with AsyncSteps(function(*args, **kwargs), lease) as turn:
                while await turn.advance():
                    try:
                        turn.send((yield turn.item))
                    except GeneratorExit:
                        raise
                    except BaseException as thrown:
                        turn.throw(thrown)

    return locked
