"""Redisson and Python on one Redis Cluster, where releases are published to shards, and slots move."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest
from redis.crc import key_slot

import holdfast
from tests.interop.counterparts import awkward_names, counterpart, exclusive
from tests.interop.recording import TO_JAVA, TO_PYTHON, shows
from tests.interop.redisson import JAVA, Java, Kind, listened_to
from tests.servers.cluster import RedisCluster
from tests.support.waiting import eventually

if not os.environ.get("INTEROP"):
    pytest.skip("INTEROP is not set", allow_module_level=True)

pytestmark = pytest.mark.timeout(400)  # the first run downloads the jars

#: Without a wake-up Java's waiters look again after half a minute.
WOKEN_WITHIN: Final = 10.0
NAMES: Final = ("name", "other", "{tag}:name")  # three slots
KINDS: Final[tuple[Kind, ...]] = ("lock", "fenced", "spin", "fair", "write", "read", "permits")
each_kind: Final = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def java(redisson_of_cluster: Java) -> Java:
    return redisson_of_cluster


@pytest.fixture
def locks(cluster_locks: holdfast.Client) -> holdfast.Client:
    return cluster_locks


def is_waiting(cluster: RedisCluster, kind: Kind, name: str) -> bool:
    """A spin lock does not listen: it looks again and again."""
    return kind == "spin" or listened_to(cluster.nodes, name)


# ---- exclusion, wake-ups, tokens


@pytest.mark.essential
@pytest.mark.interop(JAVA, "on a cluster: exclusion, wake-ups", direction=TO_JAVA)
@each_kind
def test_java_is_excluded_and_then_woken_by_python(
    java: Java, locks: holdfast.Client, redis_cluster: RedisCluster, kind: Kind
) -> None:
    for name in NAMES:
        lease = exclusive(locks, kind, name)
        # Not for a moment: if that is over while Redisson subscribes, it may stay subscribed.
        assert java.take("j", kind, name, timeout=0, lease=60) is None
        eventually(lambda name=name: not listened_to(redis_cluster.nodes, name), within=20)  # type: ignore[misc]
        java.acquire("j", kind, name, lease=60)
        eventually(lambda name=name: is_waiting(redis_cluster, kind, name), within=20)  # type: ignore[misc]
        released = time.monotonic()
        lease.release()
        held = java.held("j")
        assert held is not None
        assert held.at - released < WOKEN_WITHIN
        java.release("j", kind, name)


@pytest.mark.essential
@pytest.mark.interop(JAVA, "on a cluster: exclusion, wake-ups", direction=TO_PYTHON)
@each_kind
def test_python_is_excluded_and_then_woken_by_java(java: Java, locks: holdfast.Client, kind: Kind) -> None:
    with ThreadPoolExecutor(1) as pool:
        for name in NAMES:
            if kind == "permits":
                java.resize(name, 1)
            assert java.take("j", kind, name, lease=60) is not None
            assert counterpart(locks, kind, name).try_acquire() is None
            waiting = pool.submit(exclusive, locks, kind, name)
            eventually(lambda name=name: locks.inspect(name).waiters == 1, within=20)  # type: ignore[misc]
            released = java.release("j", kind, name)
            assert released is not None
            lease = waiting.result(20)
            assert time.monotonic() - released < WOKEN_WITHIN
            lease.release()


@pytest.mark.interop("RFencedLock", "on a cluster: tokens in the order of grants")
def test_tokens_of_both_languages_are_in_the_order_of_grants(java: Java, locks: holdfast.Client) -> None:
    tokens = []
    for _ in range(3):
        held = java.take("j", "fenced", "name")
        assert held is not None
        tokens.append(held.token)
        java.release("j", "fenced", "name")
        with locks.lock("name", timeout=20) as lease:
            tokens.append(lease.token)
    assert tokens == sorted(set(tokens))


@pytest.mark.interop(JAVA, "on a cluster: awkward names")
@each_kind
def test_names_mean_the_same_lock(java: Java, locks: holdfast.Client, kind: Kind) -> None:
    for name in awkward_names(in_cluster=True):
        with exclusive(locks, kind, name):
            assert java.take("j", kind, name, timeout=0, lease=60) is None, name
        assert java.take("j", kind, name, lease=60) is not None, name
        assert counterpart(locks, kind, name).try_acquire() is None, name
        java.release("j", kind, name)


# ---- breaking


@pytest.mark.interop(JAVA, "on a cluster: `forceUnlock` and `break_`", direction=TO_PYTHON)
@pytest.mark.parametrize("kind", ["lock", "fenced", "spin", "fair", "write"])
def test_force_unlock_by_java_is_a_loss_in_python(java: Java, locks: holdfast.Client, kind: Kind) -> None:
    lease = exclusive(locks, kind)
    assert java.force_unlock(kind, "name")
    eventually(lambda: not lease.held, within=20)
    assert lease.lost_reason == "broken"
    assert java.take("j", kind, "name") is not None
    java.release("j", kind, "name")


@pytest.mark.interop(JAVA, "on a cluster: `forceUnlock` and `break_`", direction=TO_JAVA)
@each_kind
def test_break_by_python_takes_the_lock_from_java_and_wakes_the_next(
    java: Java, locks: holdfast.Client, redis_cluster: RedisCluster, kind: Kind
) -> None:
    if kind == "permits":
        java.resize("name", 1)
    waiter: Kind = "write" if kind == "read" else kind
    assert java.take("j", kind, "name", lease=60) is not None
    java.acquire("k", waiter, "name", lease=60)
    eventually(lambda: is_waiting(redis_cluster, kind, "name"), within=20)
    assert locks.break_("name")
    assert java.held("k") is not None
    assert java.release("j", kind, "name") is None
    assert java.release("k", waiter, "name") is not None


# ---- slots that move

#: All in one slot.
MOVED: Final = {kind: f"{{moving}}:{kind}" for kind in KINDS}
#: Of Python's locks there (s). Redisson subscribes again some time after its slot has moved; a release in between wakes
#: its waiters when the TTL that they have seen is over.
TTL: Final = 3.0

moves: Final = shows([JAVA[kind] for kind in KINDS], "slot migration under a held and awaited lock")


@pytest.fixture
def mover(redisson_jars: str, redis_cluster: RedisCluster) -> Iterator[Java]:
    """A process for this test alone: it takes Redisson some seconds to find out where slots are."""
    with Java(redisson_jars, *redis_cluster.nodes, topology="cluster") as java:
        yield java


def move(cluster: RedisCluster) -> None:
    there = next(master for master in cluster.masters() if master is not cluster.master_of("{moving}"))
    cluster.migrate_slot(key_slot(b"moving"), there)


@moves
def test_locks_of_java_exclude_and_wake_python_after_their_slot_has_moved(
    mover: Java, locks: holdfast.Client, redis_cluster: RedisCluster
) -> None:
    mover.resize(MOVED["permits"], 1)
    for kind, name in MOVED.items():
        assert mover.take(kind, kind, name, lease=60 if kind == "permits" else None) is not None
    with ThreadPoolExecutor(len(KINDS)) as pool:
        waiting = [pool.submit(exclusive, locks, kind, name) for kind, name in MOVED.items()]
        for name in MOVED.values():
            eventually(lambda name=name: locks.inspect(name).waiters == 1, within=20)  # type: ignore[misc]
        move(redis_cluster)
        for kind, name in MOVED.items():
            assert counterpart(locks, kind, name).try_acquire() is None
        assert not any(each.done() for each in waiting)
        for kind, name in MOVED.items():
            assert mover.release(kind, kind, name) is not None
        leases = [each.result(20) for each in waiting]
        for kind, name in MOVED.items():
            assert mover.take(kind, kind, name, timeout=0, lease=60) is None
        for lease in leases:
            lease.release()


@moves
def test_locks_of_python_exclude_and_wake_java_after_their_slot_has_moved(
    mover: Java, redis_cluster: RedisCluster
) -> None:
    with holdfast.connect(redis_cluster.url, token_ttl=None, ttl=TTL) as locks:
        leases = [exclusive(locks, kind, name) for kind, name in MOVED.items()]
        for kind, name in MOVED.items():
            mover.acquire(kind, kind, name, lease=60)
        for kind, name in MOVED.items():
            eventually(lambda kind=kind, name=name: is_waiting(redis_cluster, kind, name), within=20)  # type: ignore[misc]
        move(redis_cluster)
        for kind, name in MOVED.items():
            assert mover.take("other", kind, name, timeout=0, lease=60) is None
        for lease in leases:
            lease.renew()
            lease.release()
        for kind, name in MOVED.items():
            assert mover.held(kind) is not None
            assert counterpart(locks, kind, name).try_acquire() is None
            assert mover.release(kind, kind, name) is not None
            exclusive(locks, kind, name).release()
