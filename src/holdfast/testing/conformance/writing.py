"""How a case is written: an ``async def`` method that takes a world, and says what it needs of the engine."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from holdfast.testing.conformance.opening import Api, Source
from holdfast.testing.conformance.world import open_world

#: No case may take longer; a lost wake-up shows here, not as a hanging run.
_CASE_WITHIN: Final = 45.0

Method = Callable[..., Awaitable[None]]


class Plan:
    """What the fixtures ``world``, ``sync_world`` and ``async_world`` give: ``case`` makes a World of it."""

    def __init__(self, source: Source, api: Api) -> None:
        self.source = source
        self.api = api


def case(method: Method) -> Callable[..., None]:
    """Make a test of an ``async def`` method: run in an event loop of its own, with Worlds for its Plans.

    In sync and async the body runs in that loop; in sync, what it tests runs on the actors' threads.
    """
    assert inspect.iscoroutinefunction(method)

    @functools.wraps(method)
    def test(*arguments: Any, **keywords: Any) -> None:
        asyncio.run(_play(method, arguments, keywords))

    return test


async def _play(method: Method, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    (place,) = (name for name, value in keywords.items() if isinstance(value, Plan))
    plan: Plan = keywords[place]
    limit = plan.source.paced(_CASE_WITHIN)
    async with open_world(plan.source, plan.api) as world, asyncio.timeout(limit):
        await method(*arguments, **keywords | {place: world})


def needs(*promises: str) -> Callable[[Any], Any]:
    """The case, or all cases of a class, can only be run on an engine whose guarantees include ``promises``."""

    def mark(thing: Any) -> Any:
        tests = [thing]
        if inspect.isclass(thing):
            tests = [value for name, value in vars(thing).items() if name.startswith("test_")]
        for test in tests:
            test.needs_of_engine = promises
        return thing

    return mark


def skip_unless_given(request: pytest.FixtureRequest, source: Source) -> None:
    """Skip a case whose needs the engine does not meet. The reason names engine and promise, for a table of skips."""
    promises = getattr(request.function, "needs_of_engine", ())
    if promises:
        client = source.open("sync")
        missing = sorted(promise for promise in promises if not getattr(client.guarantees, promise))
        if missing:
            pytest.skip(f"{client._engine.scheme} does not give {', '.join(missing)}")
