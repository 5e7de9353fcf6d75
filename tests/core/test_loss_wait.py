"""``lease.lost.wait`` takes every duration, and a number as ``threading.Event.wait`` does."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

import holdfast
from holdfast import aio

TIMEOUTS = [0.05, "50ms", timedelta(milliseconds=50), 0, -1]


@pytest.mark.parametrize("timeout", TIMEOUTS, ids=str)
def test_wait_on_a_held_lease_ends_with_its_timeout(timeout: holdfast.Duration) -> None:
    with holdfast.connect("memory:loss-wait") as locks, locks.lock("a") as lease:
        assert not lease.lost.wait(timeout)


@pytest.mark.parametrize("timeout", TIMEOUTS, ids=str)
def test_async_wait_on_a_held_lease_ends_with_its_timeout(timeout: holdfast.Duration) -> None:
    async def main() -> None:
        async with aio.connect("memory:loss-wait") as locks, locks.lock("b") as lease:
            assert not await lease.lost.wait(timeout)

    asyncio.run(main())


def test_a_text_that_is_no_duration_is_refused() -> None:
    with holdfast.connect("memory:loss-wait") as locks:
        lease = locks.lock("c").acquire()
        with pytest.raises(ValueError, match="timeout is not a duration"):
            lease.lost.wait("soon")
        lease.release()


def test_a_lost_lease_is_reported_within_the_timeout() -> None:
    with holdfast.connect("memory:loss-wait") as locks:
        lease = locks.lock("d").acquire()
        locks.break_("d")
        assert lease.lost.wait("5s")
