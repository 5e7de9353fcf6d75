"""Three servers, whose leader is killed under holders and waiters of both languages."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

import holdfast
from tests.interop.contending import Mix, compete
from tests.interop.curator import PEER as PEER
from tests.interop.curator import Java, Recipe, path_of
from tests.interop.curator.turns import JavaTurn, PythonTurn, Turn, queued
from tests.servers.ensemble import Ensemble
from tests.support.waiting import eventually

if not os.environ.get("INTEROP"):
    pytest.skip("INTEROP is not set", allow_module_level=True)

pytestmark = pytest.mark.timeout(400)  # the first run downloads the jars

SECONDS: Final = 6.0
LATE: Final = 30.0
PROPERTY: Final = "an ensemble whose leader is killed"


def kill_leader(ensemble: Ensemble) -> None:
    ensemble.kill(ensemble.leader())
    ensemble.wait_for_leader()


@pytest.mark.interop("InterProcessMutex", PROPERTY)
@pytest.mark.interop("InterProcessReadWriteLock", PROPERTY)
@pytest.mark.interop("InterProcessSemaphoreV2", PROPERTY)
@pytest.mark.interop("LeaderLatch", PROPERTY)
def test_holders_keep_their_locks_and_waiters_are_granted_afterwards(
    ensemble: Ensemble, java_of_three: Java, locks_of_three: holdfast.Client
) -> None:
    """Of each kind one held in Java with a waiter in Python, and one held in Python with a waiter in Java."""
    java, locks = java_of_three, locks_of_three
    recipes: tuple[Recipe, ...] = ("mutex", "write", "permits")
    for recipe in recipes:
        assert java.take(recipe, path_of(f"j-{recipe}"), recipe=recipe, size=1) is not None
    java.lead("leading", path_of("j-latch"))
    assert java.held("leading") is not None
    in_python = {
        "p-mutex": locks.lock("p-mutex").acquire(),
        "p-write": locks.rwlock("p-write").write.acquire(),
        "p-permits": locks.semaphore("p-permits", 1).acquire(),
        "p-latch": locks.election("p-latch").campaign(timeout=LATE),
    }
    waiters = {
        "mutex": PythonTurn(lambda: locks.lock("j-mutex").acquire(timeout=LATE)),
        "write": PythonTurn(lambda: locks.rwlock("j-write").write.acquire(timeout=LATE)),
        "permits": PythonTurn(lambda: locks.semaphore("j-permits", 1).acquire(timeout=LATE)),
        "latch": PythonTurn(lambda: locks.election("j-latch").campaign(timeout=LATE)),
    }
    for name in waiters:
        queued(locks, f"j-{name}", 2)
    for recipe in recipes:
        java.acquire(f"w-{recipe}", path_of(f"p-{recipe}"), recipe=recipe, size=1)
    java.lead("w-latch", path_of("p-latch"), timeout=LATE)
    for name in waiters:
        eventually(lambda: java.sleeps(f"w-{name}"), within=LATE)  # noqa: B023

    kill_leader(ensemble)

    assert all(lease.held for lease in in_python.values())
    assert all(turn.waits for turn in waiters.values()), "Java's sessions go on"
    eventually(lambda: java.leads("leading"), within=LATE)  # not while it was disconnected
    for name, lease in in_python.items():
        lease.check()
        # The waiting head of Curator's semaphore has a lease already, which it gives up again.
        assert len(locks.inspect(name).holders) == (2 if name == "p-permits" else 1)
        lease.release()
    for name in waiters:
        held = java.held(f"w-{name}")
        assert held is not None
        assert held.token > in_python[f"p-{name}"].token
    for recipe in recipes:
        java.release(recipe, recipe)
        java.release(f"w-{recipe}", recipe)
    for latch in ("leading", "w-latch"):
        java.resign(latch)
    for turn in waiters.values():
        turn.held()
        turn.release()


@pytest.mark.interop("InterProcessMutex", PROPERTY)
def test_the_queue_of_both_languages_keeps_its_order(
    ensemble: Ensemble, java_of_three: Java, locks_of_three: holdfast.Client
) -> None:
    java, locks = java_of_three, locks_of_three
    turns: list[Turn] = []
    for number, in_java in enumerate((1, 0, 1, 0)):
        if in_java:
            turns.append(JavaTurn(java, f"j{number}", path_of("queue")))
        else:
            turns.append(PythonTurn(lambda: locks.lock("queue").acquire(timeout=LATE)))
        queued(locks, "queue", number + 1)
    first = turns[0].held()
    kill_leader(ensemble)
    held, released = [first], [turns[0].release()]
    for turn in turns[1:]:
        held.append(turn.held())
        released.append(turn.release())
    assert all(at > before for before, (at, _) in zip(released, held[1:], strict=False))
    assert all(one < two for one, two in pairwise(token for _, token in held))


@pytest.mark.interop("InterProcessMutex", PROPERTY)
def test_no_update_is_lost_while_leaders_are_killed(
    ensemble: Ensemble, java_of_three: Java, locks_of_three: holdfast.Client, tmp_path: Path
) -> None:
    def issued() -> int:
        return len((tmp_path / "tokens").read_text("ascii").split())

    before = 0

    def kill() -> None:
        nonlocal before
        eventually(lambda: issued() > 20, within=LATE)
        kill_leader(ensemble)
        before = issued()

    contest = compete(
        Mix(("mutex", "mutex"), ("lock", "lock")), java_of_three, locks_of_three, tmp_path, SECONDS,
        late=LATE, name_in_java=path_of("name"), meanwhile=kill,
    )  # fmt: skip
    assert len(contest.tokens) == sum(result.grants for result in contest.results)
    assert len(contest.tokens) > before, "granted again"
