"""Sync clients under the threads of frameworks: each job is a caller of its own."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import anyio.from_thread
import anyio.to_thread
import pytest
from asgiref.sync import async_to_sync, sync_to_async

import holdfast
from holdfast.client import Lock


@pytest.fixture
def lock() -> Iterator[Lock]:
    with holdfast.connect(f"memory:{uuid.uuid4().hex}") as client:
        lock = client.lock("a")
        lock.acquire().release()  # this context has been a caller: its copies must not be taken for it
        yield lock


async def test_jobs_of_starlette_and_anyio_are_callers_of_their_own(lock: Lock) -> None:
    one_thread = anyio.CapacityLimiter(1)
    first = await anyio.to_thread.run_sync(lock.try_acquire, limiter=one_thread)
    assert first is not None
    assert await anyio.to_thread.run_sync(lock.try_acquire, limiter=one_thread) is None
    await anyio.to_thread.run_sync(first.release, limiter=one_thread)


async def test_tasks_that_an_anyio_job_started_come_back_to_its_thread_as_other_callers(lock: Lock) -> None:
    one_thread = anyio.CapacityLimiter(1)
    loop = asyncio.get_running_loop()
    results: list[object] = []

    async def use() -> None:
        results.append(await anyio.to_thread.run_sync(lock.try_acquire, limiter=one_thread))

    def job() -> None:
        lock.acquire().release()
        tasks.extend(asyncio.run_coroutine_threadsafe(use(), loop) for _ in range(2))

    tasks: list[object] = []
    await anyio.to_thread.run_sync(job, limiter=one_thread)
    await asyncio.gather(*(asyncio.wrap_future(task) for task in tasks))  # type: ignore[arg-type]
    assert [lease is None for lease in results] in ([True, False], [False, True])
    for lease in results:
        if isinstance(lease, holdfast.Lease):
            lease.release()


def test_jobs_of_django_and_asgiref_are_callers_of_their_own(lock: Lock) -> None:
    async def request() -> object:
        return await sync_to_async(lock.try_acquire)()

    async def two_requests() -> list[object]:
        return list(await asyncio.gather(request(), request()))

    results = async_to_sync(two_requests)()
    assert [lease is None for lease in results] in ([True, False], [False, True])
    for lease in results:
        if isinstance(lease, holdfast.Lease):
            lease.release()
