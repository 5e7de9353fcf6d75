"""The four kinds of functions, each wrapped by a function of its own kind, as frameworks look at it.

Each wrapper uses ``with lock:``, the block that releases whatever ends it: a signal between any two instructions, an
exception, another thread that closes the generator. A wrapper that acquired and released by itself would have gaps.
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
    """How ``function`` runs. Of a callable object, its ``__call__`` says so."""
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
    _counting = threading.RLock()  # re-entrant: a signal handler may call the function, too


_renew_lock()
os.register_at_fork(after_in_child=_renew_lock)  # a thread that was not copied may hold it


class Skips:
    """Counts the calls that found their lock busy, and logs each."""

    def __init__(self, called: str) -> None:
        self._called = called
        self._number = 0

    def add(self, busy: AcquireTimeout) -> None:
        with _counting:
            self._number += 1
        _log.info("%s() was skipped: lock %r is busy", self._called, busy.name)

    def count(self) -> int:
        """How many calls were skipped in this process because the lock was busy."""
        return self._number


def wrap(function: Callable[..., Any], locks: Locks, plan: Plan, skips: Skips) -> Callable[..., Any]:
    """``function`` inside its lock, as a function of the same kind."""
    makers = {
        "function": _function,
        "coroutine": _coroutine,
        "generator": _generator,
        "async generator": _async_generator,
    }
    wrapper = makers[kind_of(function)](function, locks, plan, skips)
    functools.update_wrapper(wrapper, function)
    for name in ("__module__", "__name__", "__qualname__"):  # a partial, or an object, has none: its function does
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
            if inside or plan.on_busy != "skip":
                raise  # inside, it is about a lock that the function itself waited for
            skips.add(busy)
            return plan.default

    return locked_with_options


def _not_run(function: Callable[..., Any], coroutine: Any) -> UsageError:
    """For a plain function that returns a coroutine: the work would be done after the lock has been released."""
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
            if inside or plan.on_busy != "skip":
                raise
            skips.add(busy)
            return plan.default

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
            if inside or plan.on_busy != "skip":
                raise
            skips.add(busy)
            return plan.default

    return locked


def _async_generator(function: Callable[..., Any], locks: Locks, plan: Plan, skips: Skips) -> Callable[..., Any]:
    from holdfast.decorator.async_generators import AsyncSteps, released_at_the_end

    async def locked(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        lock = locks.of(args, kwargs)
        try:
            lease = await lock.acquire(timeout=lock._policy.timeout)
        except AcquireTimeout as busy:
            if plan.on_busy != "skip":
                raise
            skips.add(busy)
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
