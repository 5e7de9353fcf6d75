"""Redisson's RCountDownLatch beside ``latch()`` on the same names: counts and names; wake-ups are measured in
``test_redisson_waiting.py``."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

import holdfast
from tests.interop.counterparts import awkward_names
from tests.interop.recording import NEVER, UNORDERED
from tests.interop.redisson import Java
from tests.servers.redis import RedisServer
from tests.support.child import Child
from tests.support.waiting import eventually

if not os.environ.get("INTEROP"):
    pytest.skip("INTEROP is not set", allow_module_level=True)

pytestmark = pytest.mark.timeout(400)  # the first run downloads the jars

LATCH: Final = "RCountDownLatch"


@pytest.mark.essential
@pytest.mark.interop(LATCH, "counting down together")
def test_latch_is_counted_down_by_both_languages_whichever_makes_it(redisson: Java, locks: holdfast.Client) -> None:
    latch = locks.latch("loaded", 3)
    latch.count_down()
    assert redisson.count("loaded") == 2
    redisson.count_down("loaded")
    assert latch.count() == 1
    assert not latch.wait(0)
    redisson.count_down("loaded")
    assert (latch.count(), redisson.count("loaded")) == (0, 0)
    assert latch.wait(0)

    assert redisson.set_count("made in Java", 2)
    latch = locks.latch("made in Java", None)
    assert latch.count() == 2
    latch.count_down()
    redisson.wait_for_latch("j", "made in Java", timeout=0.2)
    assert redisson.opened("j") is None
    latch.count_down()
    redisson.wait_for_latch("j", "made in Java", timeout=5)
    assert redisson.opened("j") is not None


@pytest.mark.interop(LATCH, "closing again")
def test_latch_that_one_language_closes_again_is_closed_for_the_other(redisson: Java, locks: holdfast.Client) -> None:
    latch = locks.latch("loaded", 1)
    latch.count_down()
    assert redisson.set_count("loaded", 2), "an open latch can be set"
    assert latch.count() == 2
    assert not latch.wait(0)
    for _ in range(2):
        redisson.count_down("loaded")
    assert latch.wait(0)
    latch.reset()
    assert redisson.count("loaded") == latch.count() == 1
    assert not redisson.set_count("loaded", 5), "a closed latch cannot be set"


@pytest.mark.interop(LATCH, "counts of concurrent callers")
def test_no_count_is_lost_or_doubled(redisson: Java, locks: holdfast.Client, redis_server: RedisServer) -> None:
    count = 60
    latch = locks.latch("loaded", count + 1)
    latch.reset()
    with Child(redis_server.url) as child, ThreadPoolExecutor(2) as pool:
        child.send(f"[locks.latch('loaded', None).count_down() for _ in range({count // 3})] and 1")
        counting = [pool.submit(locks.latch("loaded", None).count_down) for _ in range(count // 3)]
        for _ in range(count // 3):
            redisson.count_down("loaded")
        for each in counting:
            each.result(30)
        child.answer()
    assert latch.count() == redisson.count("loaded") == 1


@pytest.mark.interop(LATCH, "awkward names")
def test_names_mean_the_same_latch(redisson: Java, locks: holdfast.Client) -> None:
    for name in awkward_names():
        latch = locks.latch(name, 2)
        latch.count_down()
        assert redisson.count(name) == 1, name
        redisson.wait_for_latch("j", name)
        latch.count_down()
        assert redisson.opened("j") is not None, name


@pytest.mark.interop(LATCH, "rounds: an opening that Java undoes at once may be missed", verdict=UNORDERED)
def test_round_that_java_opens_and_closes_between_two_looks_is_missed(redisson: Java, locks: holdfast.Client) -> None:
    latch = locks.latch("loaded", 1)
    latch.reset()
    redisson.count_down("loaded")
    assert redisson.set_count("loaded", 1)
    assert latch.count() == 1


@pytest.mark.interop(LATCH, "with `lock()` or `semaphore()` on one name", verdict=NEVER)
def test_latch_refuses_the_name_of_a_held_lock(redisson: Java, locks: holdfast.Client) -> None:
    assert redisson.take("j", "lock", "stock") is not None
    with pytest.raises(holdfast.EngineRefused, match="another type"):
        locks.latch("stock", 1).count_down()
    redisson.release("j", "lock", "stock")


@pytest.mark.essential
@pytest.mark.interop(LATCH, "on a cluster: counting down together, wake-ups")
def test_latch_on_a_cluster_is_counted_down_by_both_languages(
    redisson_of_cluster: Java, cluster_locks: holdfast.Client
) -> None:
    java = redisson_of_cluster
    for name in ("loaded", "other", "third"):
        latch = cluster_locks.latch(name, 2)
        latch.count_down()
        assert java.count(name) == 1
        java.wait_for_latch("j", name)
        latch.count_down()
        assert java.opened("j") is not None
        assert java.set_count(name, 1)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(latch.wait, 20)
            eventually(waiting.running)
            java.count_down(name)
            assert waiting.result(30)
