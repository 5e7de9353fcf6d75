"""Java's DistributedDoubleBarrier and Python's barrier: members of both enter and leave together, round by round."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

import holdfast
from tests.interop.curator import PEER as PEER
from tests.interop.curator import Java, path_of
from tests.interop.curator.conftest import SHORT
from tests.servers.ensemble import Ensemble
from tests.servers.zookeeper import ZooKeeperServer
from tests.support.calls import Call
from tests.support.child import Child
from tests.support.waiting import eventually

if not os.environ.get("INTEROP"):
    pytest.skip("INTEROP is not set", allow_module_level=True)

pytestmark = pytest.mark.timeout(400)  # the first run downloads the jars

BARRIER: Final = "DistributedDoubleBarrier"
LIMIT: Final = 20.0
NAMES: Final = {"{shop}:cart": "{shop}:cart", "a/b": "a%2Fb", "名前": "名前", "🔒": "%F0%9F%94%92", "ready": "ready"}


def gathered(locks: holdfast.Client, members: int, name: str = "gate") -> None:
    """Waits until there are so many members."""
    eventually(lambda: len(locks.inspect(name).holders) == members, within=LIMIT)


@pytest.mark.interop(BARRIER, "rounds")
@pytest.mark.parametrize("last", ["python", "java"])
def test_members_of_both_languages_enter_and_leave_together(java: Java, locks: holdfast.Client, last: str) -> None:
    path, ours = path_of("gate"), locks.barrier("gate", 3)
    for _ in range(3):
        java.enter("j1", path, 3)
        gathered(locks, 1)
        if last == "python":
            java.enter("j2", path, 3)
            gathered(locks, 2)
        entering = Call(lambda: ours.enter(LIMIT))
        if last == "java":
            gathered(locks, 2)
            assert not entering.done
            java.enter("j2", path, 3)
        assert entering.result(LIMIT)
        assert java.passed("j1") is not None
        assert java.passed("j2") is not None
        java.leave("j1")
        if last == "python":
            java.leave("j2")
            for contender in ("j1", "j2"):
                eventually(lambda: java.sleeps(contender), within=LIMIT)  # noqa: B023
            assert ours.leave(LIMIT)
        else:
            assert ours.leave(0) is False
            java.leave("j2")
        assert java.passed("j1") is not None
        assert java.passed("j2") is not None
        gathered(locks, 0)


def test_late_comer_in_python_waits_for_the_next_round_of_java(java: Java, locks: holdfast.Client) -> None:
    path, late = path_of("gate"), locks.barrier("gate", 2)
    for contender in ("j1", "j2"):
        java.enter(contender, path, 2)
    assert java.passed("j1") is not None
    assert java.passed("j2") is not None
    assert late.enter(0) is False
    entering = Call(lambda: late.enter(LIMIT))
    for contender in ("j1", "j2"):
        java.leave(contender)
    assert java.passed("j1") is not None
    assert java.passed("j2") is not None
    assert not entering.done
    java.enter("j1", path, 2)
    assert java.passed("j1") is not None
    assert entering.result(LIMIT)
    java.leave("j1")
    assert late.leave(LIMIT)
    assert java.passed("j1") is not None


@pytest.mark.interop(BARRIER, "Java enters a round that is open already", verdict="safe, but unordered")
def test_late_comer_in_java_enters_the_open_round_of_python_which_waits_for_it(
    java: Java, locks: holdfast.Client
) -> None:
    alone = locks.barrier("gate", 1)
    assert alone.enter(LIMIT)
    java.enter("j", path_of("gate"), 2)
    assert java.passed("j") is not None, "the number of members is a threshold in Java"
    assert alone.leave(1) is False
    java.leave("j")
    assert java.passed("j") is not None
    assert alone.enter(LIMIT)
    assert alone.leave(LIMIT)


@pytest.mark.alone  # it measures how long that takes
@pytest.mark.interop(BARRIER, "killed members")
def test_killed_members_of_both_languages_block_no_other(
    victim: Java, java: Java, locks: holdfast.Client, zookeeper_server: ZooKeeperServer
) -> None:
    path, ours = path_of("gate"), locks.barrier("gate", 3)
    with Child(zookeeper_server.url, ttl=SHORT) as child:
        child.do("keep.setdefault('b', locks.barrier('gate', 3)) and 1")
        child.send("keep['b'].enter(20)")
        victim.enter("v", path, 3)
        gathered(locks, 2)
        assert ours.enter(LIMIT)
        assert victim.passed("v") is not None
        assert child.answer() is True
        killed = time.monotonic()
        victim.kill()
        child.kill()
        assert ours.leave(LIMIT)
        assert time.monotonic() - killed < SHORT + 1.0
    java.enter("j", path, 2)
    gathered(locks, 1)
    with Child(zookeeper_server.url, ttl=SHORT) as child:
        assert child.do("keep.setdefault('b', locks.barrier('gate', 2)).enter(20)")
        assert java.passed("j") is not None
        java.leave("j")
        child.kill()
        assert java.passed("j") is not None


@pytest.mark.interop(BARRIER, "rounds")
def test_no_member_is_through_before_all_have_come(java: Java, locks: holdfast.Client) -> None:
    """Two members in each language, in many rounds. A new one begins when ``leave()`` has returned in all: a member of
    Curator that is still about to return takes those of the next round for its own, and waits for them to leave."""
    path, rounds, came, over = path_of("gate"), 12, [0, 0], threading.Barrier(3)

    def take_part(number: int) -> None:
        barrier = locks.barrier("gate", 4)
        for round_ in range(1, rounds + 1):
            came[number] = round_
            assert barrier.enter(LIMIT)
            assert min(came) >= round_
            assert barrier.leave(LIMIT)
            over.wait(LIMIT)

    with ThreadPoolExecutor(2) as pool:
        ours = [pool.submit(take_part, number) for number in range(2)]
        for round_ in range(1, rounds + 1):
            for contender in ("j1", "j2"):
                java.enter(contender, path, 4)
            for contender in ("j1", "j2"):
                assert java.passed(contender) is not None
                assert min(came) >= round_
            for contender in ("j1", "j2"):
                java.leave(contender)
            for contender in ("j1", "j2"):
                assert java.passed(contender) is not None
            over.wait(LIMIT)
        for each in ours:
            each.result(LIMIT)


@pytest.mark.interop(BARRIER, "awkward names")
@pytest.mark.parametrize("name, node", NAMES.items(), ids=map(ascii, NAMES))
def test_names_map_to_the_same_nodes(java: Java, locks: holdfast.Client, name: str, node: str) -> None:
    barrier = locks.barrier(name, 2)
    assert not barrier.enter(0)
    java.enter("j", path_of(node), 2)
    assert barrier.enter(LIMIT)
    assert java.passed("j") is not None
    java.leave("j")
    assert barrier.leave(LIMIT)
    assert java.passed("j") is not None


@pytest.mark.interop(BARRIER, "an ensemble whose leader is killed")
def test_members_enter_and_leave_though_the_leader_is_killed(
    ensemble: Ensemble, java_of_three: Java, locks_of_three: holdfast.Client
) -> None:
    java, ours = java_of_three, locks_of_three.barrier("gate", 3)
    entering = Call(lambda: ours.enter(LIMIT))
    gathered(locks_of_three, 1)
    other = locks_of_three.barrier("gate", 3)
    ensemble.kill(ensemble.leader())
    ensemble.wait_for_leader()
    java.enter("j", path_of("gate"), 3)
    assert other.enter(LIMIT)
    assert entering.result(LIMIT)
    assert java.passed("j") is not None
    ensemble.recover()
    ensemble.kill(ensemble.leader())
    ensemble.wait_for_leader()
    leaving = Call(lambda: ours.leave(LIMIT))
    java.leave("j")
    assert other.leave(LIMIT)
    assert leaving.result(LIMIT)
    assert java.passed("j") is not None
