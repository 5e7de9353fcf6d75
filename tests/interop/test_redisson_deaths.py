"""Holders of both languages that are renewed, frozen or killed, on one Redis and on a cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Final

import pytest

import holdfast
from tests.interop.conftest import SHORT
from tests.interop.counterparts import counterpart
from tests.interop.holders import PythonVictim, PythonWaiters, frozen, killed
from tests.interop.recording import TO_JAVA, TO_PYTHON, shows
from tests.interop.redisson import JAVA, Java, Kind
from tests.interop.redisson.sides import JavaVictim, JavaWaiters
from tests.servers.cluster import RedisCluster
from tests.servers.redis import RedisServer
from tests.support.child import Child
from tests.support.waiting import eventually

if not os.environ.get("INTEROP"):
    pytest.skip("INTEROP is not set", allow_module_level=True)

pytestmark = pytest.mark.timeout(400)  # the first run downloads the jars

#: What a stalled machine may add to a lock's ttl (s).
LATE: Final = 40.0

LOCKS: Final[tuple[Kind, ...]] = ("lock", "fenced", "fair", "spin")
KINDS: Final[tuple[Kind, ...]] = (*LOCKS, "write", "read")
ALL: Final[tuple[Kind, ...]] = (*KINDS, "permits")
CLASSES: Final = [JAVA[kind] for kind in ALL]


def left(server: RedisServer, name: str) -> int:
    """The lock's TTL in ms."""
    return int(server.ask("PTTL", name))


def wait_for_renewal(server: RedisServer, name: str) -> None:
    """Until the TTL has gone up."""
    lowest = left(server, name)

    def renewed() -> bool:
        nonlocal lowest
        now = left(server, name)
        lowest, before = min(lowest, now), lowest
        return now > before

    eventually(renewed, within=LATE)


@shows([JAVA[kind] for kind in KINDS], "both watchdogs")
@pytest.mark.interop("RPermitExpirableSemaphore", "Python's watchdog (Java has none for permits)", direction=TO_JAVA)
def test_both_watchdogs_renew_their_locks(victim: Java, locks: holdfast.Client, redis_server: RedisServer) -> None:
    for kind in KINDS:
        assert victim.take(kind, kind, f"java-{kind}") is not None
    began = time.monotonic()
    slots = locks.semaphore("python-slots", 1, ttl=SHORT)
    with (
        locks.lock("python", ttl=SHORT) as lease,
        locks.rwlock("python-rw", ttl=SHORT).read as reading,
        slots as permit,
    ):
        for name in ("python", "python-rw", *(f"java-{kind}" for kind in KINDS)):
            wait_for_renewal(redis_server, name)
        eventually(lambda: time.monotonic() > began + SHORT + 2, within=LATE)  # without renewal all would be over
        for held in (lease, reading, permit):
            held.check()
        assert victim.take("j", "lock", "python", timeout=0) is None
        assert victim.take("j", "write", "python-rw", timeout=0) is None
        assert victim.take("j", "permits", "python-slots", timeout=0, lease=60) is None
        for kind in KINDS:
            assert victim.state(kind, kind, f"java-{kind}").holds == 1
            assert counterpart(locks, kind, f"java-{kind}").try_acquire() is None
    for kind in KINDS:
        assert victim.release(kind, kind, f"java-{kind}") is not None


@pytest.mark.interop("RReadWriteLock", "both watchdogs")
def test_readers_of_both_languages_are_renewed_side_by_side(
    victim: Java, locks: holdfast.Client, redis_server: RedisServer
) -> None:
    """Neither the time-out keys of Python's readers nor those of Java's may run out while the other renews the lock."""
    with locks.rwlock("table", ttl=SHORT).read as reading:
        assert victim.take("j", "read", "table") is not None
        keys = redis_server.ask("KEYS", "*rwlock_timeout*")
        assert len(keys) == 2
        for key in keys:
            wait_for_renewal(redis_server, key)
        reading.check()
        assert victim.release("j", "read", "table") is not None
        assert victim.take("w", "write", "table", timeout=0) is None


# ---- killed and frozen holders


@shows(CLASSES, "killed holders", direction=TO_PYTHON)
def test_locks_of_a_killed_java_process_are_granted_after_their_ttl(victim: Java, locks: holdfast.Client) -> None:
    killed(JavaVictim(victim, ALL, SHORT), PythonWaiters(locks, ALL), SHORT + LATE)


@shows(CLASSES, "frozen holders", direction=TO_PYTHON)
def test_frozen_java_holder_loses_its_lock_and_cannot_take_it_back(victim: Java, locks: holdfast.Client) -> None:
    frozen(JavaVictim(victim, ALL, SHORT), PythonWaiters(locks, ALL), SHORT + LATE)


@shows(CLASSES, "killed holders", direction=TO_JAVA)
def test_locks_of_a_killed_python_process_are_granted_to_java(redisson: Java, redis_server: RedisServer) -> None:
    with Child(redis_server.url, ttl=SHORT) as child:
        killed(PythonVictim(child, ALL), JavaWaiters(redisson, ALL, [redis_server]), SHORT + LATE)


@shows(CLASSES, "frozen holders", direction=TO_JAVA)
def test_frozen_python_holder_loses_its_lock_to_java_and_learns_it(redisson: Java, redis_server: RedisServer) -> None:
    with Child(redis_server.url, ttl=SHORT) as child:
        frozen(PythonVictim(child, ALL), JavaWaiters(redisson, ALL, [redis_server]), SHORT + LATE)


# ---- on a cluster


@pytest.fixture
def victim_of_cluster(redisson_jars: str, redis_cluster: RedisCluster) -> Iterator[Java]:
    with Java(redisson_jars, *redis_cluster.nodes, topology="cluster", watchdog=SHORT) as java:
        yield java


@shows(CLASSES, "on a cluster: killed holders", direction=TO_PYTHON)
def test_locks_of_a_killed_java_process_on_a_cluster_are_granted(
    victim_of_cluster: Java, cluster_locks: holdfast.Client
) -> None:
    killed(JavaVictim(victim_of_cluster, ALL, SHORT), PythonWaiters(cluster_locks, ALL), SHORT + LATE)


@shows(CLASSES, "on a cluster: frozen holders", direction=TO_PYTHON)
def test_frozen_java_holder_on_a_cluster_loses_its_lock_and_cannot_take_it_back(
    victim_of_cluster: Java, cluster_locks: holdfast.Client
) -> None:
    frozen(JavaVictim(victim_of_cluster, ALL, SHORT), PythonWaiters(cluster_locks, ALL), SHORT + LATE)


@shows(CLASSES, "on a cluster: killed holders", direction=TO_JAVA)
def test_locks_of_a_killed_python_process_on_a_cluster_are_granted_to_java(
    redisson_of_cluster: Java, redis_cluster: RedisCluster
) -> None:
    with Child(redis_cluster.url, ttl=SHORT) as child:
        killed(PythonVictim(child, ALL), JavaWaiters(redisson_of_cluster, ALL, redis_cluster.nodes), SHORT + LATE)


@shows(CLASSES, "on a cluster: frozen holders", direction=TO_JAVA)
def test_frozen_python_holder_on_a_cluster_loses_its_lock_to_java_and_learns_it(
    redisson_of_cluster: Java, redis_cluster: RedisCluster
) -> None:
    with Child(redis_cluster.url, ttl=SHORT) as child:
        frozen(PythonVictim(child, ALL), JavaWaiters(redisson_of_cluster, ALL, redis_cluster.nodes), SHORT + LATE)
