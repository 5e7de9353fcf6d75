"""One signal at every place of a close: if the close is repeated, or the client dropped, nothing stays open.

Found by the count of threads in a later test: a close that was interrupted before it had woken the watchdog, and then
repeated, left the thread asleep for up to an hour.
"""

from __future__ import annotations

import contextlib
import gc
import time
import uuid
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast._core.watchdog import Watchdog
from tests.support.leaks import Baseline
from tests.support.signal_injector import InjectedInterrupt, SignalInjector
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("no_warnings_of_dropped_objects")

#: Seconds: a watchdog that sleeps for longer was not woken by anything but the close.
SOON, LONG = 10.0, 60.0
#: Here a signal may come when ``os.open`` has returned: then nothing can close that descriptor.
DESCRIPTOR_IS_IN_NO_VARIABLE = "in _checkpoints"


def interrupted_close(number: int) -> tuple[holdfast.Client, Watchdog, list[str]]:
    """An idle client whose close was interrupted at that place, its watchdog, and the place; none: there are fewer."""
    client = holdfast.connect(f"memory:{uuid.uuid4().hex}", ttl=0.1)
    with contextlib.suppress(holdfast.LockLost):  # on a busy machine; the client is idle then too
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


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("redis", marks=pytest.mark.needs_redis),
        pytest.param("zookeeper", marks=pytest.mark.needs_zookeeper),
    ]
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/locks.db"
    server: Any = request.getfixturevalue(f"{request.param}_server")
    return str(server.url)


@pytest.mark.parametrize("end", [holdfast.Client.close, lambda client: None], ids=["closed-again", "dropped"])
def test_interrupted_close_leaves_no_thread_and_no_descriptor(url: str, end: Callable[[Any], None]) -> None:
    for number in count():
        before = Baseline()
        client = holdfast.connect(url, ttl=2)
        client.lock("a").acquire().release()
        injector = SignalInjector(number)
        try:
            with injector:
                client.close()
        except InjectedInterrupt:
            end(client)
        del client
        gc.collect()
        with holdfast.connect(url) as other:
            other.ping()  # what is left of a dropped client may be closed by the next one
        place = "".join(injector.interrupted_at)
        if not place.endswith(DESCRIPTOR_IS_IN_NO_VARIABLE):
            eventually(lambda: not before.leaks(), SOON, f"nothing is left, after a signal at {place}")  # noqa: B023
        if not place:
            break
    assert number > 40, "places of a close"


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_dropped_clients_that_held_nothing_leave_no_store_open(url: str) -> None:
    before = Baseline()
    for number in range(5):
        holdfast.connect(f"{url}.{number}").ping()
        gc.collect()
    with holdfast.connect(url) as other:
        other.ping()
    assert before.leaks() == {}
