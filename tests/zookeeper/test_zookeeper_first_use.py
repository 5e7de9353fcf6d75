"""A signal during a client's first use: the next use works as if it had not happened."""

from __future__ import annotations

import gc
import threading

import kazoo
import pytest
from kazoo.client import KazooClient

import holdfast
import holdfast._core.core
from holdfast._core.local_queue import LocalQueue
from holdfast._runtime import threads
from tests.servers.zookeeper import ZooKeeperServer
from tests.support.leaks import new_threads
from tests.support.signal_injector import SOURCE, InjectedInterrupt, SignalInjector
from tests.support.waiting import eventually
from tests.zookeeper.support import LASTING, LONG_TIMEOUT, nodes

ENGINE = f"{SOURCE}/engines"
KAZOO = kazoo.__path__[0]

# An interrupt inside an __init__ leaves attributes unset, which the object's finaliser reports.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("no_warnings_of_dropped_objects"),
]


def is_usable(locks: holdfast.Client, plain: KazooClient) -> None:
    lease = locks.lock("a").acquire(timeout=LONG_TIMEOUT)
    assert nodes(plain, "a")
    core = locks._opened
    assert core is not None
    assert core.session._hub is core.watchdog._keeper._hub, "the watchdog renews in another hub"  # type: ignore[attr-defined]
    assert lease.held
    lease.release()


@pytest.mark.parametrize("kept", [False, True], ids=["exception dropped", "exception kept"])
def test_interrupt_between_opening_session_and_watchdog_leaves_the_client_usable(
    zookeeper_server: ZooKeeperServer, plain: KazooClient, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    def interrupted(*, overtaking: bool) -> LocalQueue:
        monkeypatch.setattr(holdfast._core.core, "LocalQueue", LocalQueue)
        raise InjectedInterrupt

    errors = []
    with holdfast.connect(zookeeper_server.url) as locks:
        monkeypatch.setattr(holdfast._core.core, "LocalQueue", interrupted)
        try:
            locks.lock("a").acquire()
        except InjectedInterrupt as error:
            if kept:
                errors.append(error)  # keeps the opened session alive through its traceback
        is_usable(locks, plain)
        errors.clear()
        is_usable(locks, plain)


def first_use(url: str, number: int, places: tuple[str, ...], plain: KazooClient) -> bool:
    """Use a client for the first time; whether it had a place ``number``, where a signal was injected."""
    injector = SignalInjector(number, None, places)
    # A hold whose caller was interrupted before it got a lease is given up after a part of its ttl.
    with holdfast.connect(url, ttl=LASTING, request_timeout=LONG_TIMEOUT, unavailable_after=LONG_TIMEOUT) as locks:
        try:
            with injector:
                lease = locks.lock("a").acquire(timeout=LONG_TIMEOUT)
            lease.release()
        except InjectedInterrupt:
            gc.collect(0)
        eventually(lambda: not nodes(plain, "a"), 2 * LASTING)
        is_usable(locks, plain)
    return bool(injector.interrupted_at)


@pytest.mark.parametrize(
    "places", [(ENGINE,), (KAZOO,), (threading.__file__, threads.__file__)], ids=["engine", "kazoo", "threading"]
)
def test_signal_at_any_instruction_of_the_first_use_leaves_the_client_usable_and_no_thread_behind(
    zookeeper_server: ZooKeeperServer, plain: KazooClient, places: tuple[str, ...]
) -> None:
    number, before = 0, set(threading.enumerate())
    while first_use(zookeeper_server.url, number, places, plain):
        number += 1
    assert number > 20
    eventually(lambda: not new_threads(before))
