"""Decorated coroutine functions and async generators."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import holdfast
from holdfast import aio
from tests.support.waiting import LASTING


def run_scenario(url: str, scenario: Callable[[aio.AsyncClient, aio.AsyncClient], Awaitable[None]]) -> None:
    """Runs a scenario with two clients, in an event loop of its own."""

    async def main() -> None:
        async with aio.connect(url) as client, aio.connect(url) as other, asyncio.timeout(20):
            await scenario(client, other)

    asyncio.run(main())


async def held(client: aio.AsyncClient) -> list[str]:
    return sorted([state.name async for state in client.locks()])


def name() -> str | None:
    lease = holdfast.current_lease()
    return lease.name if lease is not None else None


def test_coroutine_holds_the_lock_while_it_runs(url: str) -> None:
    async def scenario(client: aio.AsyncClient, other: aio.AsyncClient) -> None:
        class Service:
            @client.locked("{self.id}:{n}", prefix="S")
            async def work(self, n: int) -> tuple[str | None, list[str]]:
                await asyncio.sleep(0)
                return name(), await held(other)

            id = "x"

        assert await Service().work(5) == ("S:x:5", ["S:x:5"])
        assert isinstance(Service().work.lock_for(5), aio.AsyncLock)
        assert await held(other) == []
        assert name() is None

    run_scenario(url, scenario)


def test_tasks_exclude_each_other_and_each_sees_its_own_lease(url: str) -> None:
    async def scenario(client: aio.AsyncClient, other: aio.AsyncClient) -> None:
        inside = 0

        @client.locked("{key}")
        async def work(key: str) -> str | None:
            nonlocal inside
            inside += key == "a"
            assert inside <= 1
            await asyncio.sleep(0.001)
            inside -= key == "a"
            return name()

        keys = ["a", "b", "a", "c", "a"]
        assert await asyncio.gather(*(work(key) for key in keys)) == keys

    run_scenario(url, scenario)


def test_loss_cancels_the_body(url: str) -> None:
    async def scenario(client: aio.AsyncClient, other: aio.AsyncClient) -> None:
        @client.locked("a", ttl=0.3)
        async def work() -> None:
            await other.break_("a")
            await asyncio.sleep(10)

        with pytest.raises(holdfast.LockLost):
            await work()
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    run_scenario(url, scenario)


def test_cancelled_call_releases_the_lock(url: str) -> None:
    async def scenario(client: aio.AsyncClient, other: aio.AsyncClient) -> None:
        @client.locked("a")
        async def work() -> None:
            await asyncio.sleep(10)

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await work()
        assert await held(other) == []
        async with other.lock("a"):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await work()  # while it waits

    run_scenario(url, scenario)


def test_call_on_a_busy_lock_waits_skips_or_raises(url: str) -> None:
    async def scenario(client: aio.AsyncClient, other: aio.AsyncClient) -> None:
        async def work() -> str:
            return "done"

        skip = client.locked("a", on_busy="skip", default="busy")(work)
        with_error = client.locked("a", on_busy="raise")(work)
        wait = client.locked("a", timeout=0.01)(work)
        async with other.lock("a"):
            assert await skip() == "busy"
            for busy in (with_error, wait):
                with pytest.raises(holdfast.AcquireTimeout):
                    await busy()
        assert await skip() == await with_error() == await wait() == "done"
        assert skip.skipped() == 1

    run_scenario(url, scenario)


def test_async_generator_holds_the_lock_to_its_end(url: str) -> None:
    async def scenario(client: aio.AsyncClient, other: aio.AsyncClient) -> None:
        @client.locked("{key}")
        async def talk(key: str) -> AsyncGenerator[Any, Any]:
            received = [name()]
            try:
                while True:
                    received.append((yield tuple(received)))
            except KeyError:
                yield "caught"
            finally:
                seen.append((name(), await held(other)))

        seen: list[Any] = []
        generator = talk("a")
        assert await held(other) == []
        assert await anext(generator) == ("a",)
        assert name() is None
        assert await generator.asend(1) == ("a", 1)
        assert await held(other) == ["a"]
        assert await generator.athrow(KeyError()) == "caught"
        with pytest.raises(StopAsyncIteration):
            await anext(generator)
        closed = talk("a")
        await anext(closed)
        await asyncio.create_task(closed.aclose())  # by another task
        assert seen == [("a", ["a"])] * 2
        assert await held(other) == []

    run_scenario(url, scenario)


def test_dropped_async_generator_releases_the_lock(url: str) -> None:
    async def scenario(client: aio.AsyncClient, other: aio.AsyncClient) -> None:
        @client.locked("a")
        async def numbers() -> AsyncIterator[int]:
            yield 1
            yield 2

        async for _ in numbers():
            break
        gc.collect()
        async with other.lock("a", timeout=5):
            pass

    run_scenario(url, scenario)


def test_loss_between_two_steps_is_raised_at_the_yield_without_cancelling(url: str) -> None:
    async def scenario(client: aio.AsyncClient, other: aio.AsyncClient) -> None:
        steps = []

        @client.locked("a", ttl=LASTING)
        async def numbers() -> AsyncIterator[aio.AsyncLease]:
            lease = holdfast.current_lease()
            assert isinstance(lease, aio.AsyncLease)
            try:
                yield lease
                steps.append("went on without the lock")
            except holdfast.LockLost as lost:
                steps.append(lost.reason)
                raise

        generator = numbers()
        lease = await anext(generator)
        await other.break_("a")
        assert await lease.lost.wait(5)
        await asyncio.sleep(0.01)  # a cancellation would arrive here
        with pytest.raises(holdfast.LockLost):
            await anext(generator)
        assert steps == ["broken"]

    run_scenario(url, scenario)


def test_loss_in_a_step_cancels_the_task_that_runs_it(url: str) -> None:
    async def scenario(client: aio.AsyncClient, other: aio.AsyncClient) -> None:
        @client.locked("a", ttl=0.3)
        async def numbers() -> AsyncIterator[int]:
            yield 1
            await other.break_("a")
            await asyncio.sleep(10)
            yield 2

        generator = numbers()
        assert await asyncio.create_task(anext(generator)) == 1  # type: ignore[arg-type]
        second: asyncio.Task[int] = asyncio.create_task(anext(generator))  # type: ignore[arg-type]
        with pytest.raises(holdfast.LockLost):
            await second
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        assert await held(other) == []

    run_scenario(url, scenario)


def test_user_cancellation_of_a_step_takes_precedence_over_a_loss(url: str) -> None:
    async def scenario(client: aio.AsyncClient, other: aio.AsyncClient) -> None:
        @client.locked("a")
        async def numbers() -> AsyncIterator[int]:
            await asyncio.sleep(10)
            yield 1

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await anext(numbers())
        async with other.lock("a", timeout=5):
            pass

    run_scenario(url, scenario)


def test_skipped_async_generator_yields_nothing(url: str) -> None:
    async def scenario(client: aio.AsyncClient, other: aio.AsyncClient) -> None:
        async def numbers() -> AsyncIterator[int]:
            yield 1

        skip = client.locked("a", on_busy="skip")(numbers)
        with_error = client.locked("a", on_busy="raise")(numbers)
        async with other.lock("a"):
            assert [n async for n in skip()] == []
            with pytest.raises(holdfast.AcquireTimeout):
                await anext(with_error())
        assert [n async for n in skip()] == [1]
        assert skip.skipped() == 1

    run_scenario(url, scenario)
