"""One signal at every place of a close, while the watchdog sleeps for long: its thread ends all the same.

Found by the count of threads in a later test: a close that was interrupted before it had woken the watchdog, and then
repeated, left the thread asleep for up to an hour.
"""

from __future__ import annotations

import gc
import time
import uuid
from itertools import count

import pytest

import holdfast
from holdfast._core.watchdog import Watchdog
from tests.support.signal_injector import InjectedInterrupt, SignalInjector
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("no_warnings_of_dropped_objects")

#: Seconds: a watchdog that sleeps for longer was not woken by anything but the close.
SOON, LONG = 10.0, 60.0


def interrupted_close(number: int) -> tuple[holdfast.Client, Watchdog, list[str]]:
    """An idle client whose close was interrupted at that place, its watchdog, and the place; none: there are fewer."""
    client = holdfast.connect(f"memory:{uuid.uuid4().hex}", ttl=0.1)
    client.lock("a").acquire().release()
    assert client._opened is not None
    watchdog = client._opened.watchdog
    eventually(lambda: watchdog._wakes_at > time.monotonic() + LONG, SOON, "the watchdog sleeps")
    injector = SignalInjector(number)
    try:
        with injector:
            client.close()
    except InjectedInterrupt:
        pass
    return client, watchdog, injector.interrupted_at


def test_repeated_close_ends_the_watchdog() -> None:
    for number in count():
        client, watchdog, place = interrupted_close(number)
        client.close()
        eventually(watchdog.stopped.is_set, SOON, f"the watchdog ends, after a signal at {place}")
        if not place:
            break
    assert number > 15, "places of a close"


def test_watchdog_ends_if_the_client_is_dropped_instead() -> None:
    for number in count():
        client, watchdog, place = interrupted_close(number)
        del client
        gc.collect()
        eventually(watchdog.stopped.is_set, SOON, f"the watchdog ends, after a signal at {place}")
        if not place:
            break
    assert number > 15, "places of a close"
