"""Latches and barriers of several processes keep to their models; and the models find what breaks them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import holdfast
from tests.docs.markdown import ROOT
from tests.primitives.rounds import Step, barrier_problems, explains, latch

# ---- the models find broken histories


def steps(*each: tuple[str, object, float, float]) -> list[Step]:
    return [Step(*one) for one in each]


def test_model_accepts_a_wait_that_was_open_at_one_moment() -> None:
    waiter = steps(("wait", True, 0, 10))
    counter = steps(("count_down", None, 1, 2), ("count_down", None, 3, 4), ("reset", None, 5, 6), ("count", 2, 7, 8))
    assert explains([waiter, counter], 2, latch(2))


@pytest.mark.parametrize(
    "waiter, counter",
    [
        pytest.param([("wait", True, 0, 2)], [("count_down", None, 1, 1.5)], id="through too early"),
        pytest.param(
            [("wait", False, 5, 9)], [("count_down", None, 1, 2), ("count_down", None, 3, 4)], id="an opening is missed"
        ),
        pytest.param([("count", 0, 5, 6)], [("count_down", None, 1, 2)], id="one is counted twice"),
        pytest.param([("count", 2, 5, 6)], [("count_down", None, 1, 2)], id="one is not counted"),
        pytest.param(
            [("wait", True, 7, 9)],
            [("count_down", None, 1, 2), ("count_down", None, 3, 4), ("reset", None, 5, 6)],
            id="open after a reset",
        ),
    ],
)
def test_model_refuses_a_broken_latch(
    waiter: list[tuple[str, object, float, float]], counter: list[tuple[str, object, float, float]]
) -> None:
    assert not explains([steps(*waiter), steps(*counter)], 2, latch(2))


def test_step_with_an_unknown_result_may_have_happened_or_not() -> None:
    unknown = steps(("count_down", "unknown", 0, 1))
    for left in (1, 2):
        assert explains([unknown, steps(("count", left, 5, 6))], 2, latch(2))
    assert not explains([unknown, steps(("count", 0, 5, 6))], 2, latch(2))


def test_model_accepts_rounds_and_finds_members_that_did_not_wait() -> None:
    one = steps(("enter", True, 0, 3), ("leave", True, 4, 7), ("enter", True, 8, 11), ("leave", True, 12, 15))
    two = steps(("enter", True, 2, 3), ("leave", True, 6, 7), ("enter", True, 9, 10), ("leave", True, 11, 13))
    assert barrier_problems([one, two], 2) == []
    early = [one[0]._replace(ended=1), *one[1:]]
    assert barrier_problems([early, two], 2) == ["round 0: a member was through enter before another one had called it"]
    early = [*one[:1], one[1]._replace(ended=5), *one[2:]]
    assert barrier_problems([early, two], 2) == ["round 0: a member was through leave before another one had called it"]
    assert barrier_problems([one], 2)[0] == "round 0: 1 of 2 members"
    failed = [one[0]._replace(result=False), *one[1:]]
    assert barrier_problems([failed, two], 2) == ["round 0: enter did not return True"]


# ---- real processes


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=pytest.mark.needs_redis)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite://{tmp_path}/locks.db"
    found: str = request.getfixturevalue("redis_url")
    with holdfast.connect(found) as client:
        assert client.latch("latch", None).count() is None, "the server is not empty"
    return found


class Worker:
    """A process of ``rounds_worker``. It begins at ``begin``."""

    def __init__(self, url: str, kind: str, number: int, rounds: int) -> None:
        command = [sys.executable, "-m", "tests.primitives.rounds_worker", url, kind, str(number), str(rounds)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.line() == "ready"

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def begin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def history(self) -> list[Step]:
        printed, _ = self.process.communicate(timeout=90)
        return [Step(*json.loads(line)) for line in printed.splitlines()]


def histories(workers: list[Worker]) -> list[list[Step]]:
    for worker in workers:
        worker.begin()
    return [worker.history() for worker in workers]


def test_waiters_of_other_processes_see_every_opening_and_no_other(url: str) -> None:
    with holdfast.connect(url) as client:
        client.latch("latch", 2).reset()
    kinds = [("wait", 5), ("wait", 5), ("count", 400), ("count", 400)]
    workers = [Worker(url, kind, 2, rounds) for kind, rounds in kinds]
    for worker in workers:
        worker.begin()
    waited = [worker.history() for worker in workers[:2]]
    assert [[step.result for step in each] for each in waited] == [[True] * 5] * 2
    counted = [worker.history() for worker in workers[2:]]
    assert explains([*waited, *counted], 2, latch(2))


def test_members_of_other_processes_enter_and_leave_together_in_each_round(url: str) -> None:
    assert barrier_problems(histories([Worker(url, "barrier", 3, 4) for _ in range(3)]), 3) == []


def test_killed_member_blocks_the_others_no_longer_than_its_ttl(url: str) -> None:
    with holdfast.connect(url, ttl=3) as client:
        killed = Worker(url, "inside", 2, 1)
        barrier = client.barrier("barrier", 2)
        killed.begin()
        assert barrier.enter(40)
        assert json.loads(killed.line())[:2] == ["enter", True]
        killed.process.kill()
        began = time.monotonic()
        assert barrier.leave(40)
        assert time.monotonic() - began < 20
        killed.process.communicate()
