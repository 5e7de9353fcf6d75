"""One thread in another process against eight in this one (rule 5)."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

import holdfast
from tests.support.child import Child

SECONDS = 2.0

#: So many waits may be longer than the limit: a scheduler stall makes one or two long. For a starved caller, all are.
STALLED = 3

#: Runs in the other process: acquire as often as possible; number of grants, and all waits, the longest last.
LONE = f"""
(lambda lock, end, waits: [
    *(waits.append((lambda t: (lock.acquire().release(), time.monotonic() - t)[1])(time.monotonic()))
      for _ in iter(lambda: time.monotonic() < end, False)),
    len(waits), sorted(waits)
][-2:])(locks.lock('shared'), time.monotonic() + {SECONDS}, [])
"""


pytestmark = pytest.mark.alone


@pytest.fixture(params=["redis", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "redis":
        return str(request.getfixturevalue("redis_url"))
    return f"sqlite:{tmp_path / 'locks.db'}"


@pytest.mark.needs_redis
def test_one_thread_in_another_process_gets_its_share_against_eight_in_this_one(url: str) -> None:
    grants = [0] * 8
    tokens: list[int] = []
    stop = threading.Event()

    def hammer(number: int) -> None:
        while not stop.is_set():
            with locks.lock("shared") as lease:
                grants[number] += 1
                tokens.append(lease.token)

    with holdfast.connect(url) as locks, Child(url) as other:
        other.do("locks.ping()")
        threads = [threading.Thread(target=hammer, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        before = sum(grants)
        start = time.monotonic()
        alone, waits = other.do(" ".join(LONE.split()))
        ours = sum(grants) - before
        assert time.monotonic() - start >= SECONDS
        stop.set()
        for thread in threads:
            thread.join(10)
    assert alone >= (alone + ours) / 32, f"{alone} of {alone + ours} grants"
    assert alone > 10 * STALLED
    longest = waits[-1 - STALLED]
    assert longest <= 0.100, f"waited {longest * 1000:.0f} ms"
    assert all(count > 0 for count in grants), "no thread of this process starves"
    assert tokens == sorted(set(tokens)), "handed on or acquired: tokens only grow"
