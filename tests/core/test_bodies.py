"""Leaving ``async with`` after a loss: what the block raises, and that no cancellation is left over."""

from __future__ import annotations

import asyncio
import uuid

import pytest

import holdfast


async def test_a_loss_is_reported_to_a_body_that_released_its_own_handle() -> None:
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
        await asyncio.sleep(0)  # no cancellation is left to arrive here
        with pytest.raises(holdfast.LockLost):
            await outer.release()
