"""Java's waiters get their share beside Python's, which are faster and have a queue of their own (J1).

Runs of six contenders in Java, and of two in Java beside four processes in Python, take turns, so that what else the
machine does concerns both. Compared are medians of these runs: of Java's share of the grants, and of its longest wait.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple

import pytest

import holdfast
from tests.interop.redisson import Java, listened_to
from tests.servers.redis import RedisServer
from tests.support.child import Child
from tests.support.soak import soak
from tests.support.waiting import eventually

if not os.environ.get("INTEROP"):
    pytest.skip("INTEROP is not set", allow_module_level=True)

pytestmark = [pytest.mark.timeout(400), pytest.mark.alone]  # the first run downloads the jars

IN_JAVA: Final = 2
IN_PYTHON: Final = 4
ALL: Final = IN_JAVA + IN_PYTHON
RUNS: Final = 5
SHORT: Final = 1.0
FULL: Final = 6.0
LATE: Final = 60.0
ACQUISITIONS: Final = 50
BATCHES: Final = 8
#: A shorter wait says nothing about turns: more processes run than there are cores, and some wait for one (s).
SCHEDULER: Final = 0.1
#: Held for this long, and then not wanted for this long, in ms.
PATTERNS: Final = [(0, 0), (1, 1), (50, 0)]
_MODULE: Final = "__import__('tests.interop.turns', fromlist=['take_turns'])"


class Pattern(NamedTuple):
    hold: int
    think: int
    seconds: float


class Turns(NamedTuple):
    grants: int
    longest: float  #: wait, in seconds


def start_in_java(java: Java, count: int, name: str, pattern: Pattern) -> list[str]:
    contenders = [f"{name}-{number}" for number in range(count)]
    for contender in contenders:
        hold, think, seconds = map(str, (pattern.hold, pattern.think, round(pattern.seconds * 1000)))
        java.send("turns", contender, "lock", name, hold, think, seconds)
    return contenders


def turns_of(java: Java, contenders: list[str], seconds: float) -> list[Turns]:
    answers = [java.answer(contender, seconds + LATE) for contender in contenders]
    return [Turns(int(grants), int(longest) / 1000) for _, grants, longest in answers]


def alone(java: Java, pattern: Pattern) -> list[Turns]:
    return turns_of(java, start_in_java(java, ALL, "alone", pattern), pattern.seconds)


def mixed(java: Java, children: Sequence[Child], pattern: Pattern) -> tuple[list[Turns], list[Turns]]:
    """In Java, and in Python."""
    contenders = start_in_java(java, IN_JAVA, "mixed", pattern)
    hold, think, seconds = pattern.hold / 1000, pattern.think / 1000, pattern.seconds
    for child in children:
        child.send(f"{_MODULE}.take_turns(locks, 'mixed', {hold}, {think}, {seconds})")
    return turns_of(java, contenders, seconds), [Turns(*child.answer()) for child in children]


@pytest.fixture
def children(redis_server: RedisServer) -> Iterator[list[Child]]:
    with ExitStack() as ending:
        yield [ending.enter_context(Child(redis_server.url, token_ttl=None)) for _ in range(IN_PYTHON)]


def longest(turns: Sequence[Turns]) -> float:
    return max(each.longest for each in turns)


@pytest.mark.parametrize("hold, think", PATTERNS)
@pytest.mark.parametrize("seconds", [SHORT, soak(FULL, reason="a longest wait needs many rounds")])
def test_java_has_its_share_and_waits_no_longer_than_without_python(
    redisson: Java, children: list[Child], hold: int, think: int, seconds: float
) -> None:
    pattern = Pattern(hold, think, seconds)
    alone(redisson, pattern._replace(seconds=0.2))  # Java compiles what is new
    waits_alone, waits, shares = [], [], []
    for _ in range(RUNS):
        waits_alone.append(longest(alone(redisson, pattern)))
        java, python = mixed(redisson, children, pattern)
        waits.append(longest(java))
        shares.append(sum(each.grants for each in java) / sum(each.grants for each in java + python))
        assert min(each.grants for each in python) > 0
    share, waited, waited_alone = map(statistics.median, (shares, waits, waits_alone))
    print(f"share {share:.3f} of {IN_JAVA / ALL:.3f}: {[round(each, 3) for each in shares]}")
    print(f"longest wait {waited:.3f} s: {waits}; in Java alone {waited_alone:.3f} s: {waits_alone}")
    assert share >= 0.5 * IN_JAVA / ALL
    assert waited <= max(waited_alone, SCHEDULER)


def commands_per_acquisition(server: RedisServer, locks: holdfast.Client, name: str) -> float:
    """Of the server, those inside scripts included. The least of several batches: where the machine stalls, a client's
    watchdog looks at a lock that is held for long, or connects again."""
    with server.client() as probe:

        def count() -> int:
            stats = probe.info("commandstats")
            return sum(values["calls"] for command, values in stats.items() if command != "cmdstat_info")

        found = []
        for _ in range(BATCHES):
            before = count()
            for _ in range(ACQUISITIONS):
                with locks.lock(name):
                    pass
            found.append((count() - before) / ACQUISITIONS)
        return min(found)


def test_python_alone_runs_the_same_commands_before_and_after_java_has_waited(
    redisson: Java, locks: holdfast.Client, redis_server: RedisServer
) -> None:
    """It loses nothing for the sake of Java's turns where Java does not wait: also if it waits for another lock."""
    commands_per_acquisition(redis_server, locks, "name")  # scripts are loaded
    before = commands_per_acquisition(redis_server, locks, "name")
    assert redisson.take("j", "lock", "other") is not None
    for name in ("name", "other"):
        with locks.lock("name"):
            redisson.acquire("waiter", "lock", name)
            eventually(lambda: redisson.sleeps("waiter"), within=20)
        if name == "name":
            assert redisson.held("waiter") is not None
            redisson.release("waiter", "lock", name)
    eventually(lambda: not listened_to([redis_server], "name"), within=20)
    after = commands_per_acquisition(redis_server, locks, "name")
    redisson.release("j", "lock", "other")
    assert redisson.held("waiter") is not None
    redisson.release("waiter", "lock", "other")
    print(f"commands for each acquisition: {before:.2f}, after Java has waited {after:.2f}")
    assert after <= 1.03 * before
