"""A caller takes back what was handed over to a waiter that has not run since: bounded, and the waiter loses nothing.

The tests hold the core's lock while they release and acquire again: so the waiter is woken but cannot accept.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast._core import acquisition, breaking, direct_acquire, installing, local_queue
from holdfast._core.core import Core
from holdfast._core.local_queue import MAX_HANDOVERS, LocalQueue, LocalWaiter
from tests.support.overtaking import SOON, Contention
from tests.support.waiting import eventually, until


@pytest.fixture(autouse=True)
def _slow_machine(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if request.node.name != test_no_thread_waits_for_more_holds_than_the_blocks_before_it.__name__:
        monkeypatch.setattr(local_queue, "MAX_CHAIN_SECONDS", 30.0)  # a scheduler stall must not end the chain


def serving(contention: Contention, served: threading.Event) -> Callable[[], None]:
    """A waiter that sets ``served`` once it holds the lock."""

    def wait() -> None:
        with contention.lock:
            served.set()

    return wait


def test_the_caller_that_comes_back_overtakes_a_waiter_that_has_not_run() -> None:
    tokens: list[int] = []

    def wait() -> None:
        with contention.lock as lease:
            tokens.append(lease.token)

    with Contention() as contention:
        lease, threads = contention.hold_while_others_wait(wait)
        tokens.append(lease.token)
        for _ in range(3):
            with contention.core.lock:
                lease.release()
                lease = contention.lock.acquire(timeout=0)
            tokens.append(lease.token)
            assert lease.held
        lease.release()
        threads[0].join(SOON)
    assert len(tokens) == 5
    assert tokens == list(range(tokens[0], tokens[0] + 5)), "every hold has its own, larger token"


async def test_tasks_do_not_overtake_each_other() -> None:
    """To run the next one takes no switch of threads: it would be unfair for little."""
    served: list[str] = []

    async def take_twice(name: str) -> None:
        for _ in range(2):
            async with lock:
                served.append(name)

    async with holdfast.aio.connect(f"memory:{uuid.uuid4().hex}") as locks:
        lock = locks.lock("a")
        held = await lock.acquire()
        core = locks._opened
        assert core is not None
        tasks = [asyncio.create_task(take_twice(name)) for name in "bcd"]
        await until(lambda: core.queue.waiting("a") == 3)
        await held.release()
        await asyncio.gather(*tasks)
    assert served == ["b", "c", "d", "b", "c", "d"]


def test_the_lock_is_released_when_the_block_is_used_up_and_the_waiter_contends() -> None:
    served = threading.Event()
    with Contention() as contention:
        lease, _ = contention.hold_while_others_wait(serving(contention, served))
        with contention.core.lock:
            for _ in range(MAX_HANDOVERS):
                lease.release()
                lease = contention.lock.acquire(timeout=0)
            lease.release()
            with pytest.raises(holdfast.AcquireTimeout):
                contention.lock.acquire(timeout=0)
        assert served.wait(SOON)


def test_a_waiter_that_was_overtaken_waits_again_without_spinning() -> None:
    served = threading.Event()
    with Contention() as contention:
        lease, _ = contention.hold_while_others_wait(serving(contention, served))
        (waiter,) = contention.core.queue.waiters["a"]
        for _ in range(3):
            before = waiter.event
            with contention.core.lock:
                lease.release()
                lease = contention.lock.acquire(timeout=0)
            eventually(lambda: waiter.event is not before)  # noqa: B023 -- called before the next iteration
            assert not waiter.event.is_set()
        assert not served.is_set()
        lease.release()
        assert served.wait(SOON)


def test_a_waiter_whose_time_is_over_when_it_was_overtaken_leaves() -> None:
    failures: list[BaseException] = []

    def wait() -> None:
        began = time.monotonic()
        try:
            contention.lock.acquire(timeout=0.2)
        except holdfast.AcquireTimeout as error:
            failures.append(error)
        assert time.monotonic() - began < SOON / 2

    with Contention() as contention:
        lease, threads = contention.hold_while_others_wait(wait)
        with contention.core.lock:
            lease.release()
            lease = contention.lock.acquire(timeout=0)
        threads[0].join(SOON)
        assert len(failures) == 1
        assert contention.core.queue.waiting("a") == 0
        assert lease.held
        lease.release()
        assert not contention.core.queue.occupants


def test_closing_turns_away_a_waiter_that_was_overtaken() -> None:
    failures: list[BaseException] = []

    def wait() -> None:
        try:
            contention.lock.acquire(timeout=SOON)
        except holdfast.UsageError as error:
            failures.append(error)

    with Contention() as contention:
        lease, threads = contention.hold_while_others_wait(wait)
        with contention.core.lock:
            lease.release()
            lease = contention.lock.acquire(timeout=0)
        contention.client.close()
        threads[0].join(SOON)
        assert len(failures) == 1
        assert not lease.held


def test_what_may_have_been_broken_on_its_way_to_a_waiter_is_not_taken_back() -> None:
    """The waiter has it verified; a caller that came later would not know that it must."""
    with Contention() as contention:
        lease, threads = contention.hold_while_others_wait(lambda: contention.lock.acquire().release())
        with contention.core.lock:
            lease.release()
            breaking._suspect_acquires(contention.core, "a")
            with pytest.raises(holdfast.AcquireTimeout):
                contention.lock.acquire(timeout=0)
        threads[0].join(SOON)
        assert not threads[0].is_alive()


def test_no_thread_waits_for_more_holds_than_the_blocks_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight threads acquire as often as they can. A waiter with n others before it is granted the lock after at most
    n + 1 blocks; and every thread has at least a quarter of an even share."""
    seconds = 1.0
    holds = 0
    joined: dict[object, tuple[int, int]] = {}  # by acquisition: how many were before it, and the holds so far
    waited: list[tuple[int, int]] = []
    join, install, install_directly = LocalQueue.join, installing.install, installing.install_directly

    def noting_join(self: LocalQueue, key: str, waiter: LocalWaiter) -> None:
        # One that has not accepted what it is offered is before it, too: it is the head again if that is taken back.
        joined[waiter.caller] = self.waiting(key) + (key in self.offers), holds
        join(self, key, waiter)

    def count(seeker: object) -> None:
        nonlocal holds
        if seeker in joined:
            before, since = joined.pop(seeker)
            waited.append((before, holds - since))
        holds += 1

    def counting_install(core: Core, hold: object, grant: object, seeker: object, *rest: object) -> None:
        with core.lock:
            count(seeker)
            install(core, hold, grant, seeker, *rest)  # type: ignore[arg-type]

    def counting_install_directly(core: Core, hold: Any, granted: Any) -> bool:
        with core.lock:
            count(hold)  # which has not waited
            return install_directly(core, hold, granted)

    monkeypatch.setattr(LocalQueue, "join", noting_join)
    monkeypatch.setattr(acquisition, "install", counting_install)
    monkeypatch.setattr(direct_acquire, "install_directly", counting_install_directly)
    counts: Counter[int] = Counter()
    tokens: list[int] = []

    def is_over() -> bool:
        """A second is enough, unless the machine is so busy that hardly any thread has waited in it."""
        now = time.monotonic()
        return now >= end and (len(waited) > 100 or now >= end + SOON / 2)

    def hammer(number: int) -> None:
        while not is_over():
            with contention.lock as lease:
                counts[number] += 1
                tokens.append(lease.token)

    with Contention() as contention:
        end = time.monotonic() + seconds
        threads = [threading.Thread(target=hammer, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SOON)
    assert len(waited) > 100
    for before, others in waited:
        assert others <= (before + 1) * (MAX_HANDOVERS + 1), f"{others} holds came before that of place {before}"
    assert 4 * 8 * min(counts[number] for number in range(8)) >= sum(counts.values()), counts
    assert tokens == sorted(set(tokens)), "tokens only grow"
