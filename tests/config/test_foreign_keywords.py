"""Keywords and methods of other lock libraries are refused with what to write instead."""

from __future__ import annotations

import re
from typing import Any

import pytest

import holdfast
from holdfast import aio

MEMORY = "memory:foreign-keywords"

FOREIGN_KEYWORDS = [
    ({"blocking": False}, "try_acquire()"),
    ({"blocking_timeout": 5}, "timeout="),
    ({"sleep": 0.1}, "leave it out"),
    ({"thread_local": False}, "any thread or task may release it"),
]
FOREIGN_METHODS = [("release", "lease.release()"), ("extend", "lease.renew(ttl=…)"), ("owned", "lease.held")]


@pytest.fixture(params=["sync", "async"])
def locks(request: pytest.FixtureRequest) -> Any:
    return holdfast.connect(MEMORY) if request.param == "sync" else aio.connect(MEMORY)


@pytest.mark.parametrize("keyword, remedy", FOREIGN_KEYWORDS)
def test_keyword_of_another_library_on_lock_is_refused_with_its_translation(
    locks: Any, keyword: dict[str, Any], remedy: str
) -> None:
    with pytest.raises(holdfast.UsageError, match=re.escape(remedy)) as caught:
        locks.lock("orders", **keyword)
    assert f"lock() has no {next(iter(keyword))}=" in str(caught.value)


@pytest.mark.parametrize("method", ["acquire", "try_acquire"])
def test_keyword_of_another_library_on_acquire_is_refused_and_acquires_nothing(method: str) -> None:
    lock: Any = holdfast.connect(MEMORY).lock("orders")
    with pytest.raises(holdfast.UsageError, match=re.escape(f"{method}() has no blocking=")):
        getattr(lock, method)(blocking=False)
    assert holdfast.connect(MEMORY).inspect("orders").holders == ()


def test_misspelt_keyword_names_the_nearest(locks: Any) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'tll'; did you mean ttl="):
        locks.lock("orders", tll=3)


@pytest.mark.parametrize("method, remedy", FOREIGN_METHODS)
def test_method_that_belongs_to_the_lease_is_missing_on_the_lock_with_a_remedy(
    locks: Any, method: str, remedy: str
) -> None:
    lock = locks.lock("orders")
    assert not hasattr(lock, method)
    with pytest.raises(AttributeError, match=re.escape(remedy)) as caught:
        getattr(lock, method)
    assert caught.value.name == method


def test_the_remedy_on_an_async_lock_is_awaited() -> None:
    lock: Any = aio.connect(MEMORY).lock("orders")
    with pytest.raises(AttributeError, match=re.escape("call await lease.release(), or use 'async with lock:'")):
        lock.release  # noqa: B018
    lock = holdfast.connect(MEMORY).lock("orders")
    with pytest.raises(AttributeError, match=re.escape("call lease.release(), or use 'with lock:'")):
        lock.release  # noqa: B018


def test_any_other_missing_attribute_reads_as_in_python(locks: Any) -> None:
    lock = locks.lock("orders")
    with pytest.raises(AttributeError, match=f"'{type(lock).__name__}' object has no attribute 'foo'"):
        _ = lock.foo
