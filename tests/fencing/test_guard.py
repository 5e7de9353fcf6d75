"""Behaviour common to all fences: check and guard, sync and async."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass

import pytest

from holdfast.errors import AcquireTimeout, StaleToken, UsageError
from holdfast.fencing import Fence


@dataclass
class FakeLease:
    token: int
    owner: str


def test_check_raises_the_fence_and_refuses_older_tokens(fence: Fence) -> None:
    fence.check("orders", 5, "a")
    fence.check("orders", 5, "a")
    fence.check("orders", FakeLease(7, "b"))
    for token, owner in [(5, "a"), (6, "b"), (7, "a"), (7, None)]:
        with pytest.raises(StaleToken) as refused:
            fence.check("orders", token, owner)
        assert (refused.value.resource, refused.value.token, refused.value.seen) == ("orders", token, 7)
    fence.check("orders", FakeLease(7, "b"))


def test_resources_are_independent(fence: Fence) -> None:
    fence.check("a", 9)
    fence.check("b", 1)
    with fence.guard("a", 9), fence.guard("b", 1):
        pass


def test_refused_guard_does_not_run_its_body_and_frees_the_fence(fence: Fence) -> None:
    fence.check("r", 2)
    with pytest.raises(StaleToken), fence.guard("r", 1):
        raise AssertionError("the body ran")
    with fence.guard("r", 3, timeout=0):
        pass


def test_exception_in_the_body_propagates_and_the_token_stays_raised(fence: Fence) -> None:
    with pytest.raises(ZeroDivisionError), fence.guard("r", 5):
        raise ZeroDivisionError
    with pytest.raises(StaleToken):
        fence.check("r", 4)
    with fence.guard("r", 5, timeout=0):
        pass


@pytest.mark.parametrize("resource", ["", "\ud800", "x" * 513])
def test_invalid_resource_is_refused(fence: Fence, resource: str) -> None:
    with pytest.raises(ValueError):
        fence.check(resource, 1)


@pytest.mark.parametrize("token, error", [(True, TypeError), (-1, ValueError), ("1", TypeError)])
def test_invalid_token_is_refused(fence: Fence, token: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        fence.check("r", token)
    fence.check("r", 0)  # no token was stored


@pytest.mark.parametrize("timeout", [-1, float("nan"), True])
def test_invalid_timeout_is_refused(fence: Fence, timeout: float) -> None:
    with pytest.raises(ValueError):
        fence.guard("r", 1, timeout=timeout)


def test_newer_holder_waits_for_the_write_in_progress(fence: Fence) -> None:
    written: list[str] = []
    inside, go_on = threading.Event(), threading.Event()

    def old_holder() -> None:
        with fence.guard("r", 1):
            inside.set()
            assert go_on.wait(10)
            written.append("old")

    def new_holder() -> None:
        with fence.guard("r", 2):
            written.append("new")

    threads = [threading.Thread(target=old_holder), threading.Thread(target=new_holder)]
    threads[0].start()
    assert inside.wait(10)
    threads[1].start()
    with pytest.raises(AcquireTimeout), fence.guard("r", 3, timeout=0.05):
        raise AssertionError("two inside one guard")
    assert written == []
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert written == ["old", "new"]


def test_nested_guard_is_an_error_and_not_a_deadlock(fence: Fence) -> None:
    with fence.guard("r", 1):
        with pytest.raises(UsageError, match="wait for ever"), fence.guard("r", 1):
            pass
        with pytest.raises(UsageError, match="wait for ever"):
            fence.check("r", 1)
    fence.check("r", 1)


def test_one_guard_can_be_raised_repeatedly_but_not_concurrently(fence: Fence) -> None:
    guard = fence.guard("r", 1)
    with guard:
        with pytest.raises(UsageError, match="raised already"):
            guard.__enter__()
        with pytest.raises(UsageError, match="wait for ever"):  # the first guard is still raised
            fence.check("r", 1)
    with guard:
        pass


async def _turn(fence: Fence, log: list[str], name: str, token: int) -> None:
    async with fence.guard("r", token):
        log.append(f"{name} in")
        await asyncio.sleep(0)
        log.append(f"{name} out")


def test_tasks_of_one_loop_take_turns(fence: Fence) -> None:
    async def main() -> list[str]:
        log: list[str] = []
        await asyncio.wait_for(asyncio.gather(*(_turn(fence, log, f"t{n}", 1) for n in range(5))), 10)
        return log

    log = asyncio.run(main())
    assert len(log) == 10
    assert all(a.removesuffix(" in") == b.removesuffix(" out") for a, b in zip(log[::2], log[1::2], strict=True))


def test_async_wait_does_not_block_the_loop_while_a_thread_holds(fence: Fence) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def holder() -> None:
        with fence.guard("r", 1):
            inside.set()
            assert go_on.wait(10)

    async def main() -> None:
        thread = asyncio.get_running_loop().run_in_executor(None, holder)
        assert await asyncio.to_thread(inside.wait, 10)
        waiter = asyncio.create_task(_turn(fence, [], "w", 2))
        for _ in range(100):  # the loop runs while the task waits
            await asyncio.sleep(0)
        assert not waiter.done()
        go_on.set()
        await asyncio.wait_for(waiter, 10)
        await thread

    asyncio.run(main())


def test_cancelled_wait_leaves_the_fence_free_and_unchanged(fence: Fence) -> None:
    async def main() -> None:
        async with fence.guard("r", 1):
            waiter = asyncio.create_task(_turn(fence, [], "w", 9))
            for _ in range(3):
                await asyncio.sleep(0)
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter
        async with fence.guard("r", 1, timeout=0):  # 9 was never admitted, and no guard is raised
            pass

    asyncio.run(main())


def test_async_guard_times_out_and_is_refused(fence: Fence) -> None:
    async def main() -> None:
        async with fence.guard("r", 2):
            with pytest.raises(AcquireTimeout) as late:
                await asyncio.create_task(_enter(fence, 3, 0.02))
            assert (late.value.name, late.value.timeout) == ("r", 0.02)
        with pytest.raises(StaleToken):
            await _enter(fence, 1, 0)
        await _enter(fence, 2, 0)

    asyncio.run(main())


async def _enter(fence: Fence, token: int, timeout: float) -> None:
    async with fence.guard("r", token, timeout=timeout):
        pass


def test_blocking_the_loop_of_the_holder_is_an_error_and_not_a_deadlock(fence: Fence) -> None:
    async def blocking() -> None:
        with fence.guard("r", 2):
            raise AssertionError("two inside one guard")

    async def main() -> None:
        async with fence.guard("r", 1):
            with pytest.raises(UsageError, match="async with"):
                await asyncio.create_task(blocking())
            with pytest.raises(UsageError, match="wait for ever"):
                await _enter(fence, 1, 10)  # the same task

    asyncio.run(main())
