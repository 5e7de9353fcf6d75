"""Whose hold a condition uses: that of the caller that acquired it, or of the task that has a block of its lease."""

from __future__ import annotations

import asyncio
import uuid

import pytest

import holdfast


@pytest.fixture
def client() -> holdfast.AsyncClient:
    return holdfast.aio.connect(f"memory:{uuid.uuid4().hex}")


async def acquired_in_another_task(lock: holdfast.AsyncLock) -> holdfast.AsyncLease:
    """As ``asyncio.wait_for`` does before Python 3.12."""
    return await asyncio.create_task(lock.acquire())


async def test_a_task_waits_in_a_block_of_a_lease_that_another_task_acquired(client: holdfast.AsyncClient) -> None:
    lock = client.lock("a")
    condition = client.condition(lock)
    async with client, await acquired_in_another_task(lock) as lease:
        before = lease.token
        assert not await condition.wait(0)
        assert not await condition.wait(0)
        await condition.notify()
        assert lease.held
        assert lease.token > before


async def test_a_lease_of_another_task_that_was_not_entered_is_not_held_and_the_error_says_what_to_do(
    client: holdfast.AsyncClient,
) -> None:
    lock = client.lock("a")
    lease = await acquired_in_another_task(lock)
    with pytest.raises(holdfast.NotHeld, match="async with lease:"):
        await client.condition(lock).wait(0)
    assert lease.held
    await lease.release()
    with pytest.raises(holdfast.NotHeld, match="acquire it first"):
        await client.condition(lock).notify()
    await client.close()


async def test_a_child_task_of_a_block_does_not_hold_the_lock(client: holdfast.AsyncClient) -> None:
    """It has a copy of the context of its parent, whose lock it must not give up."""
    lock = client.lock("a")
    async with client, await acquired_in_another_task(lock) as lease:
        with pytest.raises(holdfast.NotHeld):
            await asyncio.create_task(client.condition(lock).wait(0))
        assert lease.held
