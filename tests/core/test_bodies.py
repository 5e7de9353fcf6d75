"""Bodies and a loss: none begins without a lease; what ``async with`` raises; no cancellation is left over."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

import holdfast
from holdfast._core import direct_acquire, installing
from holdfast._core.core import Core
from tests.support.clients import APIS


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


@APIS
async def test_no_body_begins_with_a_lease_that_was_lost_on_its_way(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by break_, between the engine's answer and the return of acquire."""
    install_directly = installing.install_directly

    def lost(core: Core, hold: Any, *others: Any) -> bool:
        in_time = install_directly(core, hold, *others)
        core.lose_grant(hold.grant, "broken")
        return in_time

    monkeypatch.setattr(direct_acquire, "install_directly", lost)
    bodies: list[str] = []

    async def enter() -> None:
        url = f"memory:{uuid.uuid4().hex}"
        if api == "sync":
            with holdfast.connect(url) as locks, locks.lock("a") as lease:
                bodies.append(lease.name)
        else:
            async with holdfast.aio.connect(url) as alocks, alocks.lock("a") as alease:
                bodies.append(alease.name)

    with pytest.raises(holdfast.LockLost, match="broken"):
        await enter()
    assert bodies == []
