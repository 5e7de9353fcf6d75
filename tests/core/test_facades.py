"""Sync and async classes have the same names, parameters, defaults and first sentences. Only the waiting differs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import aio, lease

PAIRS = [
    (holdfast.Client, aio.AsyncClient),
    (holdfast.Lock, aio.AsyncLock),
    (holdfast.Lease, aio.AsyncLease),
    (lease.Loss, aio.AsyncLoss),
    (holdfast.RWLock, aio.AsyncRWLock),
    (holdfast.Semaphore, aio.AsyncSemaphore),
    (holdfast.MultiLock, aio.AsyncMultiLock),
    (holdfast.Latch, aio.AsyncLatch),
    (holdfast.Barrier, aio.AsyncBarrier),
    (holdfast.Election, aio.AsyncElection),
    (holdfast.MultiLease, aio.AsyncMultiLease),
]
#: What may be only in async.
ONLY_ASYNC = {"AsyncClient.aclose"}
#: What may do I/O, or wait.
AWAITED = {
    "acquire", "try_acquire", "release", "renew", "inspect", "break_", "ping", "close", "wait",
    "attach", "detach", "count_down", "count", "reset", "enter", "leave", "campaign", "leader", "resign",
    "AsyncLock.locked", "resize",
}  # fmt: skip
#: Words that differ between sync and async.
DIFFERING = [
    ("async with", "with"),
    ("await ", ""),
    ("task", "thread"),
    (" If cancelled, the release finishes in the background.", ""),
]
ids = [sync.__name__ for sync, _ in PAIRS]


def public(kind: type) -> dict[str, Any]:
    return {name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")}


def first_sentence(thing: Any) -> str:
    text = " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
    for theirs, ours in DIFFERING:
        text = text.replace(theirs, ours)
    return text


@pytest.mark.parametrize("sync, async_", PAIRS, ids=ids)
def test_sync_and_async_have_the_same_names(sync: type, async_: type) -> None:
    extra = {name for name in public(async_) if f"{async_.__name__}.{name}" in ONLY_ASYNC}
    assert set(public(sync)) == set(public(async_)) - extra


@pytest.mark.parametrize("sync, async_", PAIRS, ids=ids)
def test_sync_and_async_have_the_same_parameters_and_defaults(sync: type, async_: type) -> None:
    for name, method in public(sync).items():
        if inspect.isfunction(method):
            ours, theirs = (_shape(function) for function in (method, public(async_)[name]))
            assert ours == theirs, f"{sync.__name__}.{name}"


def _shape(function: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    return [(one.name, one.kind, one.default) for one in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize("sync, async_", PAIRS, ids=ids)
def test_sync_and_async_have_the_same_first_sentences(sync: type, async_: type) -> None:
    for name, member in public(sync).items():
        ours, theirs = first_sentence(member), first_sentence(public(async_)[name])
        assert ours, f"{sync.__name__}.{name} has no docstring"
        assert ours == theirs, f"{sync.__name__}.{name}"


@pytest.mark.parametrize("sync, async_", PAIRS, ids=ids)
def test_what_may_do_io_is_awaited_and_nothing_else(sync: type, async_: type) -> None:
    for name, member in public(async_).items():
        if inspect.isfunction(member) and name != "aclose":
            full = f"{async_.__name__}.{name}"
            assert inspect.iscoroutinefunction(member) == bool({name, full} & AWAITED), full
            assert not inspect.iscoroutinefunction(public(sync)[name])
    assert inspect.isasyncgenfunction(aio.AsyncClient.locks)


@pytest.mark.parametrize("sync, async_", PAIRS, ids=ids)
def test_context_managers_are_sync_or_async_as_their_class(sync: type, async_: type) -> None:
    assert hasattr(sync, "__enter__") == hasattr(async_, "__aenter__")
    assert not hasattr(sync, "__aenter__")
    assert not hasattr(async_, "__enter__")


def test_connect_is_a_plain_call_with_the_same_parameters() -> None:
    assert _shape(holdfast.connect) == _shape(aio.connect)
    assert not inspect.iscoroutinefunction(aio.connect)
    assert isinstance(aio.connect("memory:"), aio.AsyncClient)  # and outside of any event loop


def test_documented_members_exist() -> None:
    lease_members = {"name", "token", "owner", "ttl", "remaining", "held", "lost", "lost_reason"}
    assert lease_members | {"check", "renew", "release", "on_lost"} <= set(public(holdfast.Lease))
    assert {"lock", "inspect", "locks", "break_", "ping", "close", "guarantees"} <= set(public(holdfast.Client))
    assert {"acquire", "try_acquire", "name"} <= set(public(holdfast.Lock))
    assert "release" not in public(holdfast.Lock)
    lock = inspect.signature(holdfast.Client.lock).parameters
    assert list(lock)[2:-1] == [
        "ttl", "renew", "timeout", "fair", "reentrant", "max_hold", "replicas", "on_lost", "require",
    ]  # fmt: skip
    assert all(one.kind is inspect.Parameter.KEYWORD_ONLY for one in list(lock.values())[2:-1])
    assert lock["foreign"].kind is inspect.Parameter.VAR_KEYWORD  # refused, with a translation
    assert lock["reentrant"].default is True
    assert inspect.signature(holdfast.Lock.acquire).parameters["timeout"].default is None
    assert inspect.signature(holdfast.Lock.try_acquire).parameters["timeout"].default == 0
