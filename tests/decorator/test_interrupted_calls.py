"""A signal at every point of a decorated call where CPython checks for signals never leaves the lock held."""

from __future__ import annotations

import gc
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import holdfast
from tests.support.signal_injector import InjectedInterrupt, SignalInjector

pytestmark = pytest.mark.usefixtures("no_warnings_of_dropped_objects")


def interrupt_everywhere(prepare: Callable[[holdfast.Client], Callable[[], Any]]) -> int:
    """Repeats the call with a signal at its first point, its second, and so on, until it completes. Each time another
    client gets the lock long before its ttl of 30 s, and the same caller can call again."""
    number = 0
    while True:
        url, injector = f"memory:{uuid.uuid4().hex}", SignalInjector(number)
        with holdfast.connect(url) as other, holdfast.connect(url) as client:
            client.ping()
            call = prepare(client)
            try:
                with injector:
                    call()
            except InjectedInterrupt:
                gc.collect(0)
            free = other.lock("a").try_acquire(timeout=5)
            assert free is not None, f"left held by a signal at {injector.interrupted_at}"
            free.release()
            call()
            assert holdfast.current_lease() is None
        if not injector.interrupted_at:
            return number
        number += 1


def test_interrupted_function_leaves_the_lock_free() -> None:
    def prepare(client: holdfast.Client) -> Callable[[], Any]:
        return client.locked("{name}")(lambda name="a": None)

    assert interrupt_everywhere(prepare) > 60


def test_interrupted_skippable_function_leaves_the_lock_free() -> None:
    def prepare(client: holdfast.Client) -> Callable[[], Any]:
        return client.locked("{name}", on_busy="skip", timeout=5)(lambda name="a": None)

    assert interrupt_everywhere(prepare) > 60


def test_interrupted_function_with_at_least_leaves_the_lock_free() -> None:
    def prepare(client: holdfast.Client) -> Callable[[], Any]:
        return client.locked("a", at_least=0.01)(lambda: None)

    assert interrupt_everywhere(prepare) > 60


def test_interrupted_generator_leaves_the_lock_free() -> None:
    def prepare(client: holdfast.Client) -> Callable[[], Any]:
        @client.locked("a")
        def steps() -> Iterator[int]:
            yield 1
            yield 2

        return lambda: list(steps())

    assert interrupt_everywhere(prepare) > 60
