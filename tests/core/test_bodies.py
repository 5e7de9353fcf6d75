"""Leaving ``async with`` when the hold was lost: whose cancellation it was, and what comes out of the block."""

from __future__ import annotations

import asyncio
import uuid

import pytest

import holdfast


async def test_a_body_that_released_its_own_handle_is_still_told_of_the_loss() -> None:
    async with holdfast.aio.connect(f"memory:{uuid.uuid4().hex}") as locks:
        lock = locks.lock("a")
        outer = await lock.acquire()

        async def work() -> None:
            async with await lock.acquire() as lease:
                await lease.release()
                await locks.break_("a")
                await asyncio.sleep(60)

        with pytest.raises(holdfast.LockLost, match="broken"):
            await work()
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)  # nothing is left to strike here
        with pytest.raises(holdfast.LockLost):
            await outer.release()
