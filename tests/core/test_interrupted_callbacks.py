"""A signal interrupts a caller that starts the thread for callbacks: the next caller starts it."""

from __future__ import annotations

import itertools
import threading

from holdfast._runtime.blocking import BlockingRuntime
from tests.support.signal_injector import SOURCE, InjectedInterrupt, SignalInjector


def test_callbacks_are_called_after_a_signal_at_any_place() -> None:
    for first in itertools.count():
        runtime, injector, called = (
            BlockingRuntime(),
            SignalInjector(first, places=(SOURCE, threading.__file__)),
            threading.Event(),
        )
        try:
            with injector:
                runtime.dispatch(lambda: None)
        except (InjectedInterrupt, RuntimeError):
            pass  # RuntimeError: interrupted at one place, threading itself releases a lock that it has not taken
        runtime.dispatch(called.set)
        assert called.wait(5), f"not called after a signal at {injector.interrupted_at}"
        if not injector.interrupted_at:
            break
    assert first > 10
