"""Calls that are under way, listed while finalisers end some of them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from holdfast._core.operations import Operations


async def _call() -> None:
    pass


class Ends:
    """Ends an operation when the collector finds it."""

    def __init__(self, operations: Operations[int], number: int) -> None:
        self._itself = self
        self._operations = operations
        self._number = number

    def __del__(self) -> None:
        self._operations.end(self._number)


@pytest.fixture
def _eager_collector() -> Iterator[None]:
    before = gc.get_threshold()
    gc.collect()
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("_eager_collector")
def test_operations_may_end_while_they_are_listed() -> None:
    """``dictionary changed size during iteration``: found by 10,000 acquires on a loaded machine."""
    operations: Operations[int] = Operations(lambda _: None)
    running: list[Coroutine[Any, Any, None]] = [_call() for _ in range(10_000)]
    for number, coroutine in enumerate(running):
        operations.begin(number, weakref.ref(coroutine))
    gc.collect()
    for number in range(100):
        Ends(operations, number)
    gc.set_threshold(1500)  # so that the collector runs in the middle of the listing, if that allocates
    assert set(range(100, 10_000)) <= set(operations.all())
    for coroutine in running:
        coroutine.close()


def test_operation_that_ends_while_it_is_looked_at_was_not_interrupted() -> None:
    """Regression: the watchdog undid acquires that had just succeeded; of many tasks, some lost their leases."""
    coroutine = _call()
    operations: Operations[str] = Operations(lambda reference: None)

    class Ending(dict[str, Any]):
        def get(self, operation: str, default: Any = None) -> Any:
            found = super().get(operation, default)
            self.pop(operation, None)  # another thread, at this moment: first the operation, then its coroutine
            coroutine.close()
            return found

    operations.running = Ending(a=weakref.ref(coroutine))
    assert operations.interrupted() == []
