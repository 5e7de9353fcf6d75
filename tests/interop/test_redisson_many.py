"""Redisson's locks made of several: RedissonMultiLock beside ``multi()``, RedissonRedLock beside ``redlock://``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

import holdfast
from tests.interop.conftest import SHORT
from tests.interop.contending import Mix, compete
from tests.interop.counterparts import awkward_names, counterpart
from tests.interop.recording import NEVER, TO_JAVA, TO_PYTHON
from tests.interop.redisson import Java
from tests.servers.masters import Masters
from tests.support.child import Child
from tests.support.soak import soak
from tests.support.waiting import eventually

if not os.environ.get("INTEROP"):
    pytest.skip("INTEROP is not set", allow_module_level=True)

pytestmark = pytest.mark.timeout(400)  # the first run downloads the jars

MULTI: Final = "RedissonMultiLock"
RED: Final = "RedissonRedLock"
LATE: Final = 40.0


# ---- several locks on one server


@pytest.mark.essential
@pytest.mark.interop(MULTI, "exclusion")
def test_multi_locks_of_both_languages_exclude_each_other_and_single_locks(
    redisson: Java, locks: holdfast.Client
) -> None:
    multi = locks.multi([locks.lock(name) for name in ("a", "b", "c")])
    assert redisson.take("j", "multi", "c a") is not None
    assert multi.try_acquire() is None
    assert locks.lock("a").try_acquire() is None
    assert not locks.lock("b").locked(), "what was acquired for a part is released"
    redisson.release("j", "multi", "c a")
    with multi.acquire(timeout=20):
        assert redisson.take("j", "multi", "b d", timeout=0.2) is None
        assert redisson.take("j", "lock", "c", timeout=0) is None
        assert not locks.lock("d").locked()
    assert redisson.take("j", "multi", "b d") is not None
    redisson.release("j", "multi", "b d")


@pytest.mark.interop(MULTI, "wake-ups")
def test_waiters_for_multi_locks_are_woken_by_the_other_language(redisson: Java, locks: holdfast.Client) -> None:
    with locks.multi([locks.lock(name) for name in ("a", "b")]):
        redisson.acquire("j", "multi", "b a", timeout=20)
        eventually(lambda: redisson.sleeps("j"))
    assert redisson.held("j") is not None
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: locks.multi([locks.lock(name) for name in ("a", "b")]).acquire(timeout=20))
        eventually(lambda: locks.inspect("a").waiters == 1)
        redisson.release("j", "multi", "b a")
        waiting.result(20).release()


@pytest.mark.interop(MULTI, "on a cluster: exclusion, in several slots")
def test_multi_locks_in_several_slots_exclude_each_other(
    redisson_of_cluster: Java, cluster_locks: holdfast.Client
) -> None:
    java, names = redisson_of_cluster, "a b c"
    multi = counterpart(cluster_locks, "multi", names)
    assert java.take("j", "multi", names) is not None
    assert multi.try_acquire() is None
    java.release("j", "multi", names)
    with multi.acquire(timeout=20):
        assert java.take("j", "multi", names, timeout=0.2) is None
    assert java.take("j", "multi", names) is not None
    java.release("j", "multi", names)


# ---- one lock on several servers


@pytest.fixture(scope="module")
def _java_of_masters(redisson_jars: str, _shared_masters: Masters) -> Iterator[Java]:
    with Java(redisson_jars, *_shared_masters.servers, topology="servers") as java:
        yield java


@pytest.fixture
def java(_java_of_masters: Java, five_masters: Masters) -> Java:
    return _java_of_masters


@pytest.fixture
def majority(five_masters: Masters) -> Iterator[holdfast.Client]:
    with holdfast.connect(five_masters.url, token_ttl=None) as client:
        yield client


@pytest.mark.essential
@pytest.mark.interop(RED, "exclusion")
def test_red_lock_and_redlock_exclude_each_other(java: Java, majority: holdfast.Client) -> None:
    assert java.take("j", "red", "stock", timeout=5) is not None
    assert majority.lock("stock").try_acquire() is None
    java.release("j", "red", "stock")
    with majority.lock("stock", timeout=20) as lease:
        assert java.take("j", "red", "stock", timeout=0.5) is None
        lease.check()
    assert java.take("j", "red", "stock", timeout=5) is not None
    java.release("j", "red", "stock")


@pytest.mark.interop(RED, "a lock of one server's `RLock` counts as that server's vote")
def test_majority_is_granted_beside_a_lock_on_a_minority_of_servers(java: Java, majority: holdfast.Client) -> None:
    """Java holds an RLock on the first server alone."""
    assert java.take("j", "lock", "stock") is not None
    with majority.lock("stock", timeout=20) as lease:
        assert java.state("j", "lock", "stock").holds == 1
        assert java.take("k", "red", "stock", timeout=0.5) is None
        lease.check()
    java.release("j", "lock", "stock")


@pytest.mark.interop(RED, "awkward names")
def test_names_mean_the_same_red_lock(java: Java, majority: holdfast.Client) -> None:
    for name in awkward_names():
        assert java.take("j", "red", name, timeout=5) is not None, name
        assert majority.lock(name).try_acquire() is None, name
        java.release("j", "red", name)


@pytest.mark.interop(RED, "waiting", direction=TO_PYTHON)
def test_waiter_in_python_is_granted_a_red_lock_that_java_releases(java: Java, majority: holdfast.Client) -> None:
    assert java.take("j", "red", "stock", timeout=5) is not None
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: majority.lock("stock").acquire(timeout=20))
        eventually(lambda: majority.inspect("stock").waiters == 1)
        java.release("j", "red", "stock")
        waiting.result(20).release()


@pytest.mark.interop(RED, "waiting", direction=TO_JAVA)
def test_waiter_in_java_is_granted_a_red_lock_that_python_releases(java: Java, majority: holdfast.Client) -> None:
    with majority.lock("stock"):
        java.acquire("j", "red", "stock", timeout=20)
        eventually(lambda: java.sleeps("j"))
    assert java.held("j") is not None
    java.release("j", "red", "stock")


@pytest.mark.interop(RED, "`break_`", direction=TO_JAVA)
def test_broken_red_lock_of_java_is_free(java: Java, majority: holdfast.Client) -> None:
    assert java.take("j", "red", "stock", timeout=5) is not None
    assert majority.break_("stock")
    majority.lock("stock").acquire(timeout=20).release()
    java.release("j", "red", "stock")  # it ignores that no server has it any more


@pytest.mark.interop(RED, "killed holders", direction=TO_JAVA)
def test_lock_of_a_killed_python_process_is_granted_to_java(java: Java, five_masters: Masters) -> None:
    with Child(five_masters.url, ttl=SHORT) as child:
        child.do("keep.setdefault(1, locks.lock('stock').acquire()).token")
        child.kill()
    assert java.take("j", "red", "stock", timeout=SHORT + LATE) is not None
    java.release("j", "red", "stock")


@pytest.mark.interop(RED, "tokens: Java draws none, so no fence can tell its holders apart", verdict=NEVER)
def test_grant_of_a_red_lock_raises_no_counter(java: Java, majority: holdfast.Client, five_masters: Masters) -> None:
    majority.lock("stock").acquire().release()
    counters = [server.ask("GET", "redisson_lock_token:{stock}") for server in five_masters.servers]
    assert java.take("j", "red", "stock", timeout=5) is not None
    assert [server.ask("GET", "redisson_lock_token:{stock}") for server in five_masters.servers] == counters
    java.release("j", "red", "stock")


@pytest.mark.interop(RED, "contention without a lost update")
@pytest.mark.parametrize("seconds", [5.0, soak(60.0, reason="a race of two languages may need many rounds")])
def test_no_update_is_lost_under_a_red_lock(
    java: Java, majority: holdfast.Client, tmp_path: Path, seconds: float
) -> None:
    contest = compete(Mix(("red", "red"), ("lock",)), java, majority, tmp_path, seconds, late=60.0, name="stock")
    assert contest.results[-1].grants > 0
