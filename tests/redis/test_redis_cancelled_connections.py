"""A client that is cancelled while it connects, asks or closes leaves no connection open, whatever the step.

A connection that is dropped and not closed warns when it becomes garbage: in another part of the program, much later.
"""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

import holdfast.aio
from holdfast.engines.redis.connections import aio_connecting
from tests.servers.cluster import RedisCluster
from tests.servers.masters import Masters
from tests.servers.redis import RedisServer
from tests.servers.replication import Replication
from tests.support.leaks import open_files
from tests.support.waiting import eventually

Cancel = Callable[[asyncio.Task[None]], Awaitable[None]]


async def use(url: str, **options: Any) -> None:
    async with holdfast.aio.connect(url) as client, client.lock("job", **options):
        pass


async def cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


async def cancel_twice(task: asyncio.Task[None]) -> None:
    """While it cleans up after the first time."""
    task.cancel()
    await turns(2)
    task.cancel()


async def cancel_all_tasks(task: asyncio.Task[None]) -> None:
    for each in asyncio.all_tasks() - {asyncio.current_task()}:
        each.cancel()


async def end_the_loop(task: asyncio.Task[None]) -> None:
    """``asyncio.run`` cancels what is still there."""


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def cancelled_after(number: int, how: Cancel, url: str, **options: Any) -> bool:
    """Whether the client was still in use after that many turns of the loop."""
    task = asyncio.create_task(use(url, **options))
    await turns(number)
    in_use = not task.done()
    await how(task)
    if how is not end_the_loop:
        with suppress(asyncio.CancelledError):
            await task
    return in_use


@contextmanager
def no_connection_is_dropped() -> Iterator[None]:
    gc.collect()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        yield
        gc.collect()
    assert not [str(warning.message) for warning in warned if warning.category is ResourceWarning]


def cancel_at_every_turn(how: Cancel, url: str, **options: Any) -> None:
    """At first; later at every tenth or so. A server that is not scheduled takes many turns to answer."""
    asyncio.run(use(url, **options))
    number, in_use = 0, True
    with no_connection_is_dropped():
        while in_use:
            before = set(open_files("socket:"))
            in_use = asyncio.run(cancelled_after(number, how, url, **options))
            wait_until_closed(before, f"no connection is open after {number} turns")
            number += max(1, number // 10)


def wait_until_closed(before: set[str], event: str) -> None:
    """The watchdog closes its own connection a moment after the client."""
    eventually(lambda: set(open_files("socket:")) <= before, 20.0, event)


@pytest.mark.parametrize("how", [cancel, cancel_twice, cancel_all_tasks, end_the_loop])
def test_cancelled_at_any_step(how: Cancel, redis_server: RedisServer) -> None:
    cancel_at_every_turn(how, redis_server.url)


def test_cancelled_on_a_connection_of_its_own(pair: Replication) -> None:
    cancel_at_every_turn(end_the_loop, pair.url, replicas=1)


def test_cancelled_with_connections_to_several_servers_of_a_cluster(redis_cluster: RedisCluster) -> None:
    cancel_at_every_turn(end_the_loop, redis_cluster.url)


def test_cancelled_with_connections_to_independent_servers(five_masters: Masters) -> None:
    cancel_at_every_turn(end_the_loop, five_masters.url)


async def test_attempt_to_connect_that_a_signal_interrupts_at_its_beginning_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No caller knows of it: beside the next attempt it would open a connection that nothing closes."""

    async def connect() -> None:
        raise AssertionError("not cancelled")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(aio_connecting, "LoopTimer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        aio_connecting.Connecting(connect(), 1.0)
    (task,) = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.wait([task])
    assert task.cancelled()
