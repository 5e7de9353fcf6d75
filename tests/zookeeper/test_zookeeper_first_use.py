"""A signal in the middle of a client's first use: the next use finds it as if nothing had happened."""

from __future__ import annotations

import gc
import threading

import kazoo
import pytest
from kazoo.client import KazooClient

import holdfast
import holdfast._core.core
from holdfast._core.local_queue import LocalQueue
from tests.servers.zookeeper import ZooKeeperServer
from tests.support.signal_injector import SOURCE, InjectedInterrupt, SignalInjector
from tests.support.waiting import eventually
from tests.zookeeper.support import LASTING, PATIENT, nodes

ENGINE = f"{SOURCE}/engines"
KAZOO = kazoo.__path__[0]

# Interrupted inside somebody's __init__: its finaliser finds less than it expects.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("no_warnings_of_dropped_objects"),
]


def is_usable(locks: holdfast.Client, plain: KazooClient) -> None:
    lease = locks.lock("a").acquire(timeout=PATIENT)
    assert nodes(plain, "a")
    core = locks._opened
    assert core is not None
    assert core.session._hub is core.watchdog._keeper._hub, "renewed elsewhere"  # type: ignore[attr-defined]
    assert lease.held
    lease.release()


@pytest.mark.parametrize("kept", [False, True], ids=["exception dropped", "exception kept"])
def test_interrupted_between_the_sessions_of_callers_and_watchdog(
    zookeeper_server: ZooKeeperServer, plain: KazooClient, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    def interrupted() -> LocalQueue:
        monkeypatch.setattr(holdfast._core.core, "LocalQueue", LocalQueue)
        raise InjectedInterrupt

    errors = []
    with holdfast.connect(zookeeper_server.url) as locks:
        monkeypatch.setattr(holdfast._core.core, "LocalQueue", interrupted)
        try:
            locks.lock("a").acquire()
        except InjectedInterrupt as error:
            if kept:
                errors.append(error)  # and with its traceback the session that was opened
        is_usable(locks, plain)
        errors.clear()
        is_usable(locks, plain)


def first_use(url: str, number: int, places: tuple[str, ...], plain: KazooClient) -> bool:
    """Whether a signal came at place ``number`` of it."""
    injector = SignalInjector(number, None, places)
    # A hold that was interrupted before its caller had a lease is given up after a part of its ttl.
    with holdfast.connect(url, ttl=LASTING, request_timeout=PATIENT, unavailable_after=PATIENT) as locks:
        try:
            with injector:
                lease = locks.lock("a").acquire(timeout=PATIENT)
            lease.release()
        except InjectedInterrupt:
            gc.collect(0)
        except RuntimeError as error:  # of Python's own, from Thread.start, in place of the interruption
            assert str(error) == "release unlocked lock"  # noqa: PT017
        eventually(lambda: not nodes(plain, "a"), 2 * LASTING)
        is_usable(locks, plain)
    return bool(injector.interrupted_at)


@pytest.mark.parametrize("place", [ENGINE, KAZOO, threading.__file__], ids=["engine", "kazoo", "threading"])
def test_one_signal_at_each_instruction_of_the_first_use_leaves_the_client_usable(
    zookeeper_server: ZooKeeperServer, plain: KazooClient, place: str
) -> None:
    number = 0
    while first_use(zookeeper_server.url, number, (place,), plain):
        number += 1
    assert number > 20
