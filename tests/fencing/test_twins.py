"""A sync fence and its async counterpart have the same names, parameters, defaults and documentation."""

from __future__ import annotations

import inspect

import pytest

from holdfast.fencing import AsyncObjectFence, AsyncRedisFence, ObjectFence, RedisFence
from holdfast.fencing.http import AsgiMiddleware, WsgiMiddleware


def _public(kind: type) -> dict[str, object]:
    return {name: value for name, value in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


@pytest.mark.parametrize("sync, other", [(RedisFence, AsyncRedisFence), (ObjectFence, AsyncObjectFence)])
def test_sync_and_async_fences_have_the_same_calls(sync: type, other: type) -> None:
    assert inspect.signature(sync) == inspect.signature(other)
    assert set(_public(sync)) == set(_public(other)) != set()
    for name in _public(sync):
        one, two = getattr(sync, name), getattr(other, name)
        assert inspect.signature(one) == inspect.signature(two), name
        assert inspect.getdoc(one) == inspect.getdoc(two), name
        assert [inspect.iscoroutinefunction(call) for call in (one, two)] == [False, True], name


def test_both_middlewares_have_the_same_parameters() -> None:
    one, two = (inspect.signature(kind).parameters for kind in (AsgiMiddleware, WsgiMiddleware))
    assert [(p.name, p.kind, p.default) for p in one.values()] == [(p.name, p.kind, p.default) for p in two.values()]
