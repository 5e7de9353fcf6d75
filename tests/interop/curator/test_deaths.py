"""Holders and waiters of both languages that are killed, or frozen for longer than their sessions last."""

from __future__ import annotations

import os
import time
from typing import Final

import pytest

import holdfast
from tests.interop.counterparts import exclusive
from tests.interop.curator import PEER as PEER
from tests.interop.curator import Java
from tests.interop.curator.conftest import SHORT
from tests.interop.curator.sides import KINDS, JavaVictim, JavaWaiters
from tests.interop.holders import COUNTERPARTS, PythonVictim, PythonWaiters, frozen, killed
from tests.interop.recording import TO_JAVA, TO_PYTHON, shows
from tests.servers.zookeeper import ZooKeeperServer
from tests.support.child import Child
from tests.support.waiting import eventually

if not os.environ.get("INTEROP"):
    pytest.skip("INTEROP is not set", allow_module_level=True)

pytestmark = [pytest.mark.timeout(400), pytest.mark.alone]  # the first run downloads the jars

#: After the end of a session, until the next holder has the lock (s).
LATE: Final = 1.0
#: Kinds that exclude themselves.
WAITED: Final = tuple(kind for kind in KINDS if kind != "read")
CLASSES: Final = ("InterProcessMutex", "InterProcessReadWriteLock", "InterProcessSemaphoreV2", "LeaderLatch")


@shows(CLASSES, "killed holders", direction=TO_PYTHON)
def test_everything_that_a_killed_java_process_held_is_granted(victim: Java, locks: holdfast.Client) -> None:
    killed(JavaVictim(victim), PythonWaiters(locks, KINDS), SHORT + LATE)


@shows(CLASSES, "frozen holders", direction=TO_PYTHON)
def test_a_frozen_java_process_loses_everything_and_its_late_releases_do_no_harm(
    victim: Java, locks: holdfast.Client
) -> None:
    frozen(JavaVictim(victim), PythonWaiters(locks, KINDS), SHORT + LATE)


@shows(CLASSES, "killed holders", direction=TO_JAVA)
def test_everything_that_a_killed_python_process_held_is_granted(java: Java, zookeeper_server: ZooKeeperServer) -> None:
    with Child(zookeeper_server.url, ttl=SHORT) as child:
        killed(PythonVictim(child, KINDS), JavaWaiters(java), SHORT + LATE)


@shows(CLASSES, "frozen holders", direction=TO_JAVA)
def test_a_frozen_python_process_loses_everything_and_knows_it_when_it_continues(
    java: Java, zookeeper_server: ZooKeeperServer
) -> None:
    with Child(zookeeper_server.url, ttl=SHORT) as child:
        frozen(PythonVictim(child, KINDS), JavaWaiters(java), SHORT + LATE)


@shows(CLASSES, "killed waiters")
def test_killed_waiters_of_both_languages_are_passed_over(
    victim: Java, java: Java, locks: holdfast.Client, zookeeper_server: ZooKeeperServer
) -> None:
    """Of each kind a holder in Python; a waiter in Java and one in Python, which are killed; waiters of both behind
    them."""
    leases = {kind: exclusive(locks, kind, kind) for kind in WAITED}
    waiters, behind = JavaWaiters(java, WAITED), PythonWaiters(locks, WAITED)
    with Child(zookeeper_server.url, ttl=SHORT) as child:
        JavaWaiters(victim, WAITED).wait()
        child.do("keep.setdefault('threads', __import__('concurrent.futures').futures.ThreadPoolExecutor(8)) and 1")
        for kind in WAITED:
            child.do(f"keep['threads'].submit({COUNTERPARTS}.exclusive, locks, {kind!r}, {kind!r}, timeout=60) and 1")
        for kind in WAITED:
            eventually(lambda kind=kind: locks.inspect(kind).waiters == 2, within=20)  # type: ignore[misc]
        behind.wait(waiters=3)
        waiters.wait()
        victim.kill()
        child.kill()
        killed = time.monotonic()
        for lease in leases.values():
            lease.release()
    for kind, (at, _) in behind.granted().items():
        assert at - killed < SHORT + LATE, kind
    behind.release()
    assert {*waiters.granted()} == {*WAITED}
    waiters.release()
