"""A signal strikes whoever starts the thread that tells users of their losses: it is started by the next one."""

from __future__ import annotations

import itertools
import threading

from holdfast._runtime.blocking import BlockingRuntime
from tests.support.signal_injector import SOURCE, InjectedInterrupt, SignalInjector


def test_callbacks_are_run_after_a_strike_at_any_place() -> None:
    for first in itertools.count():
        runtime, injector, told = (
            BlockingRuntime(),
            SignalInjector(first, places=(SOURCE, threading.__file__)),
            threading.Event(),
        )
        try:
            with injector:
                runtime.dispatch(lambda: None)
        except (InjectedInterrupt, RuntimeError):
            pass  # RuntimeError: struck in a certain place, threading itself releases a lock that it has not taken
        runtime.dispatch(told.set)
        assert told.wait(5), f"never again after a strike at {injector.interrupted_at}"
        if not injector.interrupted_at:
            break
    assert first > 10
