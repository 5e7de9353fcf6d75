"""A ``with lock:`` block ends its own lease, wherever it ends, and no other caller's."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import holdfast
from tests.support.waiting import eventually


def on_another_thread(call: Callable[[], Any]) -> Any:
    """Run ``call`` on a thread of its own."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    thread.join(10)
    return results[0]


@pytest.fixture
def client() -> Iterator[holdfast.Client]:
    with holdfast.connect(f"memory:{uuid.uuid4().hex}") as client:
        yield client


def dependency(lock: holdfast.client.Lock) -> Iterator[holdfast.Lease]:
    with lock as lease:
        yield lease


def lost_dependency(client: holdfast.Client, lock: holdfast.client.Lock) -> Iterator[holdfast.Lease]:
    """Entered on another thread; its lease is lost."""
    block = dependency(lock)
    lease = on_another_thread(lambda: next(block))
    client.break_(lock.name)
    assert lease.lost
    return block


def test_a_block_closed_by_another_thread_does_not_end_the_lease_of_the_present_holder(
    client: holdfast.Client,
) -> None:
    lock = client.lock("a")
    block = lost_dependency(client, lock)
    with lock as mine:
        on_another_thread(block.close)  # type: ignore[attr-defined]
        assert mine.held
        assert on_another_thread(client.lock("a").try_acquire) is None


def test_a_block_ended_by_the_collector_does_not_end_the_lease_of_the_present_holder(client: holdfast.Client) -> None:
    lock = client.lock("a")
    blocks = [lost_dependency(client, lock)]
    with lock as mine:
        blocks.clear()
        gc.collect()
        assert mine.held
        assert on_another_thread(client.lock("a").try_acquire) is None


def test_a_block_closed_by_another_thread_is_released(client: holdfast.Client) -> None:
    block = dependency(client.lock("a"))
    lease = on_another_thread(lambda: next(block))
    assert lease.held
    on_another_thread(block.close)  # type: ignore[attr-defined]
    assert lease.released
    client.lock("a").acquire(timeout=5).release()


def test_a_block_that_is_never_ended_is_released_with_its_frame(client: holdfast.Client) -> None:
    """A shared Lock kept the lease of a block whose frame was gone: it was renewed for ever."""
    lock = client.lock("a")

    def enter_and_forget() -> None:
        block = lock.__exit__  # what ``with`` keeps on the stack of its frame
        lock.__enter__()
        assert block.lease.held  # type: ignore[attr-defined]

    with pytest.warns(ResourceWarning):
        enter_and_forget()
    eventually(lambda: on_another_thread(is_free(client)))


def is_free(client: holdfast.Client) -> Callable[[], bool]:
    def attempt() -> bool:
        lease = client.lock("a").try_acquire()
        if lease is not None:
            lease.release()
        return lease is not None

    return attempt


def test_reading_the_exit_attribute_does_not_enter_the_lock(client: holdfast.Client) -> None:
    lock = client.lock("a")
    assert hasattr(lock, "__exit__")
    lease = lock.__enter__()
    gc.collect()
    assert lease.held
    lock.__exit__(None, None, None)
    assert lease.released


def test_an_exit_stack_ends_the_block_of_its_caller(client: holdfast.Client) -> None:
    lock = client.lock("a")
    with contextlib.ExitStack() as stack:
        outer = stack.enter_context(lock)
        with lock as inner:
            assert inner.token == outer.token
        assert outer.held
    assert outer.released
    assert on_another_thread(is_free(client))


def test_an_exit_stack_closed_by_another_thread_ends_its_block(client: holdfast.Client) -> None:
    stack = contextlib.ExitStack()
    lease = stack.enter_context(client.lock("a"))
    on_another_thread(stack.close)
    assert lease.released


def test_stacks_closed_by_another_thread_end_the_hold_when_the_last_is_closed(client: holdfast.Client) -> None:
    """With several blocks open, none was released: the lock was renewed for no caller."""
    lock = client.lock("a")
    one, two = contextlib.ExitStack(), contextlib.ExitStack()
    leases = [one.enter_context(lock), two.enter_context(lock)]
    on_another_thread(one.close)
    assert sorted(lease.held for lease in leases) == [False, True]
    on_another_thread(two.close)
    assert not any(lease.held for lease in leases)
    assert on_another_thread(is_free(client))


def test_a_stack_whose_lease_was_lost_does_not_end_the_lease_of_the_present_holder(client: holdfast.Client) -> None:
    lock = client.lock("a")
    stack = contextlib.ExitStack()
    on_another_thread(lambda: stack.enter_context(lock))
    client.break_("a")
    mine = contextlib.ExitStack()
    lease = mine.enter_context(lock)

    def close() -> None:
        with contextlib.suppress(holdfast.LockLost):
            stack.close()

    on_another_thread(close)
    assert lease.held
    mine.close()


async def test_a_generator_that_its_task_returned_is_collected_with_its_lease() -> None:
    """The block kept its task, the task its result, and the result the block: renewed for ever."""
    async with holdfast.aio.connect(f"memory:{uuid.uuid4().hex}") as locks:
        lock = locks.lock("a")

        async def dependency() -> AsyncIterator[Any]:
            async with lock as lease:
                yield lease

        async def start() -> Any:
            block: Any = dependency()
            await anext(block)
            return block

        await asyncio.create_task(start())
        gc.collect()
        deadline = asyncio.get_running_loop().time() + 5
        while (lease := await locks.lock("a").try_acquire()) is None:
            assert asyncio.get_running_loop().time() < deadline
            gc.collect()
            await asyncio.sleep(0.01)
        await lease.release()


async def test_two_tasks_in_blocks_of_one_lease_leave_their_own_blocks() -> None:
    """Each got the other's block: the second task ended cancelled instead of with LockLost."""
    async with holdfast.aio.connect(f"memory:{uuid.uuid4().hex}") as locks:
        lease = await locks.lock("a").acquire()
        entered = [asyncio.Event(), asyncio.Event()]

        async def work(number: int) -> None:
            async with lease:
                entered[number].set()
                try:
                    await asyncio.sleep(60 * number)  # the first task leaves first, although it entered first
                    await lease.lost.wait(5)
                except asyncio.CancelledError:
                    await asyncio.sleep(0.01)  # the body takes a moment to clean up
                    raise

        tasks = [asyncio.create_task(work(number)) for number in range(2)]
        for event in entered:
            await event.wait()
        await locks.break_("a")
        done, _ = await asyncio.wait(tasks, timeout=5)
        assert [type(task.exception()) for task in tasks if task in done] == [holdfast.LockLost] * 2


async def test_an_async_exit_stack_ends_the_block_of_its_task() -> None:
    async with holdfast.aio.connect(f"memory:{uuid.uuid4().hex}") as locks:
        lock = locks.lock("a")
        async with contextlib.AsyncExitStack() as stack:
            lease = await stack.enter_async_context(lock)
            assert lease.held
        assert lease.released


async def test_an_async_generator_closed_by_another_task_releases_its_lease() -> None:
    async with holdfast.aio.connect(f"memory:{uuid.uuid4().hex}") as locks:
        lock = locks.lock("a")

        async def dependency() -> AsyncIterator[Any]:
            async with lock as lease:
                yield lease

        block: Any = dependency()

        async def enter() -> Any:
            return await anext(block)

        async def leave() -> None:
            await block.aclose()

        lease = await asyncio.create_task(enter())
        await asyncio.create_task(leave())
        assert lease.released


def test_stack_of_a_reader_that_another_thread_closes_ends_no_other_readers_lease(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with holdfast.connect("memory:readers-blocks") as client:
        read = client.rwlock("it").read
        leases = []
        for _ in range(2):
            thread = threading.Thread(target=lambda: leases.append(contextlib.ExitStack().enter_context(read)))
            thread.start()
            thread.join()
        read.__exit__(None, None, None)  # this thread has entered nothing
        assert [lease.held for lease in leases] == [True, True]
        assert "nothing is released" in caplog.text
        for lease in leases:
            lease.release()
