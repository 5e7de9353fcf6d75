"""A signal strikes whoever starts the thread that tells users of their losses: it is started by the next one."""

from __future__ import annotations

import itertools
import threading

from holdfast._runtime.blocking import BlockingRuntime
from tests.support.striker import SOURCE, Strike, Striker


def test_callbacks_are_run_after_a_strike_at_any_place() -> None:
    for first in itertools.count():
        runtime, striker, told = (
            BlockingRuntime(),
            Striker(first, places=(SOURCE, threading.__file__)),
            threading.Event(),
        )
        try:
            with striker:
                runtime.dispatch(lambda: None)
        except (Strike, RuntimeError):
            pass  # RuntimeError: struck in a certain place, threading itself releases a lock that it has not taken
        runtime.dispatch(told.set)
        assert told.wait(5), f"never again after a strike at {striker.struck_at}"
        if not striker.struck_at:
            break
    assert first > 10
