"""Callers that share a thread: jobs of a pool, tasks of a loop, generators. Each is a separate caller."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast.testing.conformance.world import World
from holdfast.testing.conformance.writing import case

Submit = Callable[[Callable[[], Any]], Awaitable[Any]]


@contextlib.contextmanager
def to_thread() -> Iterator[Submit]:
    """``asyncio.to_thread``, on a pool of one thread: every job runs there, in a copy of its task's context."""
    with ThreadPoolExecutor(1) as pool:

        async def submit(job: Callable[[], Any]) -> Any:
            return await asyncio.get_running_loop().run_in_executor(pool, contextvars.copy_context().run, job)

        yield submit


@contextlib.contextmanager
def run_in_executor() -> Iterator[Submit]:
    """``loop.run_in_executor``: the same without a context."""
    with ThreadPoolExecutor(1) as pool:

        async def submit(job: Callable[[], Any]) -> Any:
            return await asyncio.get_running_loop().run_in_executor(pool, job)

        yield submit


@contextlib.contextmanager
def worker_with_contexts() -> Iterator[Submit]:
    """A worker thread that runs each job in a copy of its submitter's context, as anyio and Starlette do."""
    jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def work() -> None:
        while (job := jobs.get()) is not None:
            job()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()

    async def submit(job: Callable[[], Any]) -> Any:
        loop, done = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()
        context = contextvars.copy_context()

        def run() -> None:
            try:
                result = context.run(job)
            except BaseException as error:
                loop.call_soon_threadsafe(done.set_exception, error)
            else:
                loop.call_soon_threadsafe(done.set_result, result)

        jobs.put(run)
        return await done

    try:
        yield submit
    finally:
        jobs.put(None)
        thread.join(5)


class CallerCases:
    @pytest.mark.parametrize("pool", [to_thread, run_in_executor, worker_with_contexts], ids=lambda pool: pool.__name__)
    @case
    async def test_jobs_that_share_a_pool_thread_never_hold_together(self, sync_world: World, pool: Any) -> None:
        """Job B acquired on the thread of job A: treated as re-entry, both held the lock, with one token."""
        client = sync_world.connect()
        lock = client.lock(sync_world.name())
        lock.acquire().release()  # this context is a caller now; copies of it must be different callers
        with pool() as submit:
            first = await submit(lock.try_acquire)
            assert first is not None
            assert await submit(lock.try_acquire) is None
            await submit(first.release)
            second = await submit(lock.try_acquire)
            assert second is not None
            assert second.token > first.token
            await submit(second.release)

    @case
    async def test_tasks_that_share_a_sync_client_never_hold_together(self, sync_world: World) -> None:
        lock = sync_world.connect().lock(sync_world.name())

        async def attempt() -> Any:
            return lock.try_acquire()

        first = await asyncio.create_task(attempt())
        assert first is not None
        assert await asyncio.create_task(attempt()) is None
        assert lock.try_acquire() is None  # this task is a third caller
        first.release()

    @case
    async def test_a_task_re_enters_what_it_holds_through_a_sync_client(self, sync_world: World) -> None:
        lock = sync_world.connect().lock(sync_world.name())
        with lock as outer:
            await asyncio.sleep(0)
            with lock as inner:
                assert inner.token == outer.token
        assert await sync_world.is_free(sync_world.name())

    @case
    async def test_a_job_re_enters_what_it_holds(self, sync_world: World) -> None:
        lock = sync_world.connect().lock(sync_world.name())

        def job() -> bool:
            with lock as outer, lock as inner:
                return bool(inner.token == outer.token)

        assert await asyncio.to_thread(job)
        assert await sync_world.is_free(sync_world.name())

    @case
    async def test_blocks_entered_and_left_by_pool_jobs_exclude_each_other(self, sync_world: World) -> None:
        """A dependency with ``yield``, whose two halves are jobs of a pool: four requests held the lock together."""
        lock = sync_world.connect().lock(sync_world.name())
        inside, most = 0, 0

        @contextlib.contextmanager
        def dependency() -> Iterator[Any]:
            with lock as lease:
                yield lease

        async def request() -> None:
            nonlocal inside, most
            block = dependency()
            lease = await asyncio.to_thread(block.__enter__)
            inside += 1
            most = max(most, inside)
            for _ in range(3):
                await asyncio.sleep(0)
                assert lease.held
            inside -= 1
            await asyncio.to_thread(block.__exit__, None, None, None)

        await asyncio.gather(*(request() for _ in range(4)))
        assert most == 1

    @case
    async def test_an_async_block_ended_by_another_task_ends_its_own_lease(self, async_world: World) -> None:
        """Closing a generator whose lease was lost released the lease of the present holder."""
        client = async_world.connect()
        lock = client.lock(async_world.name())

        async def dependency() -> AsyncIterator[Any]:
            async with lock as lease:
                yield lease

        block = dependency()
        lost = await asyncio.create_task(_enter(block))
        await client.break_(async_world.name())
        assert await lost.lost.wait(async_world.soon)
        async with lock as held:
            with contextlib.suppress(Exception):
                await asyncio.create_task(_end(block))
            assert held.held
            assert not await async_world.is_free(async_world.name())


async def _enter(block: AsyncIterator[Any]) -> Any:
    return await anext(block)


async def _end(block: Any) -> None:
    await block.aclose()
