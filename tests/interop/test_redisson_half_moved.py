"""A slot of a cluster that is half moved while both languages hold locks in it, release them and contend.

Redis refuses a script (TRYAGAIN) that names several keys of which the node has only some: so nearly all of Redisson's
and of ours. Both repeat it until the move is complete. Redisson gives up after some seconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

import holdfast
from tests.interop.conftest import SHORT
from tests.interop.contending import Mix, compete
from tests.interop.counterparts import counterpart, exclusive
from tests.interop.recording import NEVER, TO_JAVA, TO_PYTHON, shows
from tests.interop.redisson import JAVA, Java, Kind, listened_to
from tests.redis.cluster.support import HalfMoved, errors, half_moved, keys
from tests.servers.cluster import RedisCluster
from tests.support.waiting import eventually

if not os.environ.get("INTEROP"):
    pytest.skip("INTEROP is not set", allow_module_level=True)

pytestmark = pytest.mark.timeout(400)  # the first run downloads the jars

KINDS: Final[tuple[Kind, ...]] = ("lock", "fenced", "write", "permits")
CLASSES: Final = [JAVA[kind] for kind in KINDS]
#: All in one slot.
NAMES: Final = {kind: f"{{moving}}:{kind}" for kind in KINDS}
HALF_MOVED: Final = "on a cluster: a slot that is half moved"
#: Java does not renew permits anyway.
RENEWED: Final[tuple[Kind, ...]] = ("lock", "fenced", "write")
UNRENEWED: Final = "on a cluster: a slot half moved for longer than `lockWatchdogTimeout`: Java's lock expires"
#: Of Python's locks (s). Redisson subscribes again some time after a slot has moved; a release in between wakes its
#: waiters when the TTL that they have seen is over.
TTL: Final = 9.0
#: Of Java's (s): so that they last until the move is complete also if Redisson cannot renew them.
TTL_IN_JAVA: Final = 15.0
LONGEST: Final = 60.0
#: Under contention.
SECONDS: Final = 8.0
MOVES: Final = 6


@pytest.fixture
def java(redisson_jars: str, redis_cluster: RedisCluster) -> Iterator[Java]:
    """A process for this test alone: it takes Redisson some seconds to find out where slots are."""
    with Java(redisson_jars, *redis_cluster.nodes, topology="cluster", watchdog=TTL_IN_JAVA) as java:
        yield java


@pytest.fixture
def locks(redis_cluster: RedisCluster) -> Iterator[holdfast.Client]:
    with holdfast.connect(redis_cluster.url, token_ttl=None, ttl=TTL) as client:
        yield client


def refused(slot: HalfMoved) -> int:
    """How many requests were refused since the slot is half moved."""
    return sum(errors(node, "TRYAGAIN") for node in (slot.source, slot.target))


def until_refused(slot: HalfMoved, requests: Callable[[], object], least: int) -> None:
    """Waits until so many of ``requests`` were refused."""
    before = refused(slot)
    requests()
    eventually(lambda: refused(slot) >= before + least, within=20, event="a request is refused")


def granted_now(locks: holdfast.Client, kind: Kind) -> bool:
    """Whether Python gets it. An attempt that cannot be answered is none."""
    try:
        return counterpart(locks, kind, NAMES[kind]).acquire(timeout=0.3) is not None
    except (holdfast.AcquireTimeout, holdfast.EngineUnavailable):
        return False


@shows(CLASSES, HALF_MOVED, direction=TO_PYTHON)
def test_locks_of_java_exclude_python_while_their_slot_is_half_moved_and_are_released_after_it(
    java: Java, locks: holdfast.Client, redis_cluster: RedisCluster
) -> None:
    java.resize(NAMES["permits"], 1)
    for kind, name in NAMES.items():
        assert java.take(kind, kind, name, lease=LONGEST if kind == "permits" else None) is not None

    def release_all() -> None:
        for kind, name in NAMES.items():
            java.send("release", kind, kind, name)

    with ThreadPoolExecutor(len(KINDS)) as pool:
        waiting = [pool.submit(exclusive, locks, kind, name, timeout=LONGEST) for kind, name in NAMES.items()]
        for name in NAMES.values():
            eventually(lambda name=name: locks.inspect(name).waiters == 1, within=20)  # type: ignore[misc]
        with half_moved(redis_cluster, "{moving}") as slot:
            slot.carry(*NAMES.values())
            for kind in KINDS:
                assert not granted_now(locks, kind), kind
            until_refused(slot, release_all, len(KINDS))
            assert not any(each.done() for each in waiting)
        for kind in KINDS:
            assert java.answer(kind)[0] == "released", kind
        leases = [each.result(LONGEST) for each in waiting]
    for kind, name in NAMES.items():
        assert java.take(kind, kind, name, timeout=0, lease=LONGEST) is None, kind
    for lease in leases:
        lease.release()


@shows(CLASSES, HALF_MOVED, direction=TO_JAVA)
def test_locks_of_python_exclude_java_while_their_slot_is_half_moved_and_are_released_after_it(
    java: Java, locks: holdfast.Client, redis_cluster: RedisCluster
) -> None:
    """They are renewed meanwhile: each TTL passes once."""
    leases = {kind: exclusive(locks, kind, name) for kind, name in NAMES.items()}
    for kind, name in NAMES.items():
        java.acquire(kind, kind, name, lease=LONGEST)
    for name in NAMES.values():
        eventually(lambda name=name: listened_to(redis_cluster.nodes, name), within=20)  # type: ignore[misc]
    with ThreadPoolExecutor(len(KINDS)) as pool:
        releasing: list[Any] = []
        with half_moved(redis_cluster, "{moving}") as slot:
            slot.carry(*NAMES.values())
            until = max(lease._hold.grant.deadline for lease in leases.values())
            eventually(lambda: all(lease._hold.grant.deadline > until for lease in leases.values()), within=20)
            until_refused(slot, lambda: releasing.extend(pool.submit(each.release) for each in leases.values()), 4)
            assert not any(each.done() for each in releasing)
        for each in releasing:
            each.result(LONGEST)
    for kind, name in NAMES.items():
        assert java.held(kind, LONGEST) is not None, kind
        assert counterpart(locks, kind, name).try_acquire() is None, kind
        assert java.release(kind, kind, name) is not None, kind
        exclusive(locks, kind, name).release()


@shows([JAVA[kind] for kind in RENEWED], UNRENEWED, direction=TO_PYTHON, verdict=NEVER)
def test_locks_of_java_expire_if_their_slot_stays_half_moved_for_longer_than_they_last(
    redisson_jars: str, locks: holdfast.Client, redis_cluster: RedisCluster
) -> None:
    """Redisson's watchdog does not reach them. Python's locks are renewed: see the test before."""
    with Java(redisson_jars, *redis_cluster.nodes, topology="cluster", watchdog=SHORT) as java:
        for kind in RENEWED:
            assert java.take(kind, kind, NAMES[kind]) is not None
        with half_moved(redis_cluster, "{moving}") as slot:
            slot.carry(*(NAMES[kind] for kind in RENEWED))
            eventually(
                lambda: not {*NAMES.values()} & keys(slot.source, slot.target),
                within=SHORT + 20,
                event="Redisson does not renew its locks; if it does now, say so in share-with-redisson.md",
            )
        for kind in RENEWED:
            lease = exclusive(locks, kind, NAMES[kind])
            assert java.state(kind, kind, NAMES[kind]).holds == 0
            assert java.release(kind, kind, NAMES[kind]) is None
            lease.renew()
            lease.release()


@pytest.mark.interop("RFencedLock", HALF_MOVED + " under contention")
def test_no_update_is_lost_while_the_slot_moves_again_and_again(
    java: Java, locks: holdfast.Client, redis_cluster: RedisCluster, tmp_path: Path
) -> None:
    """Each time it stays half moved until requests of the contenders were refused."""
    name, moved = NAMES["fenced"], 0

    def move() -> None:
        nonlocal moved
        until = time.monotonic() + SECONDS / 2
        while moved < MOVES and time.monotonic() < until:
            with half_moved(redis_cluster, name) as slot:
                # Alone, if it is held at this moment; if it is not, its counter is left behind.
                slot.source.ask("MIGRATE", slot.target.host, slot.target.port, "", 0, 5000, "KEYS", name)
                until_refused(slot, lambda: None, 3)
            moved += 1

    mix = Mix(("fenced", "fenced"), ("lock", "lock"))
    contest = compete(mix, java, locks, tmp_path, SECONDS, late=LONGEST, name=name, meanwhile=move)
    assert contest.least > 0
    assert moved > 0
