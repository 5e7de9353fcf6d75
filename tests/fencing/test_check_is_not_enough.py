"""Why a guard is needed: a check before the write can lose an acknowledged update. Events enforce the order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from holdfast.errors import StaleToken
from holdfast.fencing import Fence


@contextmanager
def running(work: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join(10)
        assert not thread.is_alive()


def test_check_then_write_loses_an_update(fence: Fence) -> None:
    value, acknowledged = [0], []
    checked, overtaken = threading.Event(), threading.Event()

    def old_holder() -> None:
        mine = value[0] + 1
        fence.check("r", 1, "old")  # accepted: there is no newer token
        checked.set()
        assert overtaken.wait(10)  # ... frozen here, past its lease ...
        value[0] = mine
        acknowledged.append("old")

    with running(old_holder):
        assert checked.wait(10)
        fence.check("r", 2, "new")
        value[0] += 1
        acknowledged.append("new")
        overtaken.set()

    assert sorted(acknowledged) == ["new", "old"]
    assert value == [1]  # two acknowledged updates, one of them lost


def test_guard_around_the_write_alone_loses_an_update(fence: Fence) -> None:
    value, acknowledged = [0], []
    loaded, overwritten = threading.Event(), threading.Event()

    def new_holder() -> None:
        mine = value[0] + 1  # reads before its guard is raised
        loaded.set()
        assert overwritten.wait(10)
        with fence.guard("r", 2, "new"):
            value[0] = mine
            acknowledged.append("new")

    with running(new_holder):
        assert loaded.wait(10)
        with fence.guard("r", 1, "old"):  # accepted: the new holder has not presented its token yet
            value[0] += 1
            acknowledged.append("old")
        overwritten.set()

    assert sorted(acknowledged) == ["new", "old"]
    assert value == [1]


def test_guard_raised_before_the_first_read_loses_no_update(fence: Fence) -> None:
    value, acknowledged = [0], []
    loaded, tried = threading.Event(), threading.Event()

    def new_holder() -> None:
        with fence.guard("r", 2, "new"):
            mine = value[0] + 1
            loaded.set()
            assert tried.wait(10)
            value[0] = mine
            acknowledged.append("new")

    with running(new_holder):
        assert loaded.wait(10)
        guard = fence.guard("r", 1, "old")
        with pytest.raises(TimeoutError), fence.guard("r", 1, "old", timeout=0):
            raise AssertionError("let in beside the new holder")
        tried.set()
        with pytest.raises(StaleToken), guard:
            raise AssertionError("let in after the new holder")

    assert acknowledged == ["new"]
    assert value == [1]
