"""``holdfast.current_lease()`` returns the innermost open block of this context and never raises because of one."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import threading
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import pytest

import holdfast
from bench.check.counting import executed
from holdfast import aio, current
from tests.support.waiting import LASTING, eventually


def name() -> str | None:
    lease = holdfast.current_lease()
    return lease.name if lease is not None else None


def test_current_lease_is_none_outside_of_blocks(client: holdfast.Client) -> None:
    assert holdfast.current_lease() is None
    lease = client.lock("a").acquire()
    assert holdfast.current_lease() is None  # acquire without a block does not count
    lease.release()


def test_current_lease_is_that_of_the_innermost_block(client: holdfast.Client) -> None:
    with client.lock("a") as outer:
        assert holdfast.current_lease() is outer
        with client.lock("b").acquire() as inner:
            assert holdfast.current_lease() is inner
            with client.lock("a") as again:
                assert holdfast.current_lease() is again
        assert holdfast.current_lease() is outer
    assert holdfast.current_lease() is None


def test_block_that_raises_or_is_not_entered_leaves_no_current_lease(
    client: holdfast.Client, other: holdfast.Client
) -> None:
    with pytest.raises(ZeroDivisionError), client.lock("a"):
        raise ZeroDivisionError
    assert holdfast.current_lease() is None
    with other.lock("a") as outer:
        with pytest.raises(holdfast.AcquireTimeout), client.lock("a", timeout=0):
            pass
        assert holdfast.current_lease() is outer


def test_released_lease_is_skipped_and_lost_lease_is_returned(client: holdfast.Client, other: holdfast.Client) -> None:
    with client.lock("a") as outer, client.lock("b") as inner:
        inner.release()
        assert holdfast.current_lease() is outer

    def lose() -> None:
        with client.lock("a", ttl=0.3) as lease:
            other.break_("a")
            assert lease.lost.wait(5)
            assert holdfast.current_lease() is lease

    with pytest.raises(holdfast.LockLost):
        lose()


def test_ending_the_outer_block_first_keeps_the_inner_block_current(client: holdfast.Client) -> None:
    first, second = ExitStack(), ExitStack()
    first.enter_context(client.lock("a"))
    second.enter_context(client.lock("b"))
    first.close()
    assert name() == "b"
    second.close()
    assert name() is None


def test_chain_of_overlapping_blocks_leaves_no_ended_blocks(client: holdfast.Client) -> None:
    """Each lock is acquired before the previous one is released, as in a walk along a list."""
    last = client.lock("0").acquire()
    last.__enter__()
    for number in range(1, 20):
        following = client.lock(str(number)).acquire()
        following.__enter__()
        last.__exit__(None, None, None)
        last = following
        assert name() == str(number)
    block = current._innermost.get()
    assert block is not None
    assert block[1] is None, "ended blocks stay on the list"
    last.__exit__(None, None, None)
    assert name() is None


def test_block_that_ends_in_another_context_is_removed(client: holdfast.Client) -> None:
    def steps() -> Iterator[str | None]:
        with client.lock("a"):
            yield name()

    for end_in in (contextvars.Context().run, contextvars.copy_context().run):
        generator = steps()
        assert next(generator) == "a"
        end_in(generator.close)  # type: ignore[attr-defined]
        assert name() is None
        with client.lock("b"):
            assert name() == "b"
            block = current._innermost.get()
            assert block is not None
            assert block[1] is None, "an ended block stays on the list for ever"


def test_threads_and_tasks_see_the_lease_of_their_context(client: holdfast.Client) -> None:
    seen: list[str | None] = []
    with client.lock("a"):
        thread = threading.Thread(target=lambda: seen.append(name()))
        thread.start()
        thread.join(10)
        context = contextvars.copy_context()
    assert seen == [None]
    assert context.run(name) is None  # the copy outlives the block

    async def main() -> None:
        async with aio.connect("memory:") as alocks:
            async with alocks.lock("a"):
                inner = asyncio.create_task(child(alocks))
                assert await asyncio.to_thread(name) == "a"  # copies the context
                assert await inner == ["a", "b", "a"]
                assert name() == "a"
                late = asyncio.create_task(asyncio.sleep(0, None))
            await late
            assert name() is None

    async def child(alocks: aio.AsyncClient) -> list[str | None]:
        seen = [name()]
        async with alocks.lock("b"):
            seen.append(name())
        return [*seen, name()]

    asyncio.run(main())


def test_context_does_not_keep_a_dropped_lease_alive(client: holdfast.Client, other: holdfast.Client) -> None:
    def drop() -> contextvars.Context:
        client.lock("a").acquire().__enter__()
        return contextvars.copy_context()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        context = drop()
        gc.collect()
    eventually(lambda: not other.inspect("a").holders)
    assert context.run(name) is None
    assert name() is None


def test_forked_child_sees_a_lost_lease(client: holdfast.Client) -> None:
    with client.lock("a"):
        child = os.fork()
        if child == 0:
            lease = holdfast.current_lease()
            os._exit(0 if lease is not None and lease.lost_reason == "forked" else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_tracking_costs_a_block_less_than_a_microsecond(client: holdfast.Client) -> None:
    """Counted, since the time depends on the machine: a hundred instructions are about a microsecond."""
    with client.lock("outer"), client.lock("a") as lease:

        def block() -> None:
            current.enter(lease)
            current.leave(lease)

        cost = executed(block, 20)
    assert cost.instructions < 100


def test_blocks_opened_by_a_generator_are_current_only_inside_it(
    client: holdfast.Client,
) -> None:
    @client.locked("g")
    def steps() -> Iterator[str | None]:
        with client.lock("inner"):
            yield name()
            yield name()
        yield name()
        yield name()

    seen = []
    with client.lock("consumer"):
        for each in steps():
            seen.append(each)
            assert name() == "consumer"
    assert seen == ["inner", "inner", "g", "g"]
    assert name() is None


def test_blocks_opened_by_an_async_generator_are_current_only_inside_it(url: str) -> None:
    async def main() -> None:
        async with aio.connect(url) as alocks:

            @alocks.locked("g")
            async def steps() -> AsyncIterator[str | None]:
                async with alocks.lock("inner"):
                    yield name()
                    yield name()
                yield name()
                yield name()

            seen = []
            async with alocks.lock("consumer"):
                async for each in steps():
                    seen.append(each)
                    assert name() == "consumer"
            assert seen == ["inner", "inner", "g", "g"]
            assert name() is None

    asyncio.run(main())


def test_generator_clean_up_sees_its_lost_lease(url: str, other: holdfast.Client) -> None:
    seen: list[str | None] = []

    async def main() -> None:
        async with aio.connect(url) as alocks:

            @alocks.locked("g", ttl=LASTING)
            async def steps() -> AsyncIterator[int]:
                try:
                    yield 1
                finally:
                    lease = holdfast.current_lease()
                    seen.append(lease.lost_reason if lease is not None else "none")

            generator = steps()
            await anext(generator)
            hold = alocks._open().grants()[0].hold
            assert hold is not None
            other.break_("g")
            await hold.over().wait(None)
            with pytest.raises(holdfast.LockLost):
                await anext(generator)

    asyncio.run(main())
    assert seen == ["broken"]
