"""Closing while an acquire is between the engine's answer and its caller."""

from __future__ import annotations

import asyncio
import threading
import uuid
from typing import Any

import pytest

import holdfast
from holdfast import aio
from tests.support.leaks import new_threads


class ClosesAfter:
    """A session during whose ``acquire``, when the engine has granted it, ``then`` happens."""

    def __init__(self, session: Any, then: Any) -> None:
        self._session = session
        self._then = then

    async def acquire(self, claim: Any, timeout: float) -> Any:
        answer = await self._session.acquire(claim, timeout)
        self._then()
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


@pytest.fixture
def url() -> str:
    return f"memory:{uuid.uuid4().hex}"


def test_a_grant_that_arrives_after_close_is_withdrawn(url: str) -> None:
    """It would block every caller for a ttl: granted, never renewed, and without a handle."""
    client, closing = holdfast.connect(url), []

    def close_on_another_thread() -> None:
        closing.append(threading.Thread(target=client.close))
        closing[0].start()
        while not client._opened.closed:  # type: ignore[union-attr]
            pass

    client.ping()
    core = client._opened
    assert core is not None
    core.session = ClosesAfter(core.session, close_on_another_thread)
    with pytest.raises(holdfast.UsageError, match="closed"):
        client.lock("a").acquire()
    closing[0].join()
    with holdfast.connect(url) as other:
        other.lock("a").acquire(timeout=5).release()


def test_an_async_grant_that_arrives_after_close_is_withdrawn(url: str) -> None:
    async def main() -> None:
        client = aio.connect(url)
        await client.ping()
        core = client._opened
        assert core is not None
        closing: list[asyncio.Task[None]] = []

        def close() -> None:
            core._shut()  # what close() does first, before it waits for this acquire
            closing.append(asyncio.create_task(client.close()))

        core.session = ClosesAfter(core.session, close)
        with pytest.raises(holdfast.UsageError, match="closed"):
            await client.lock("a").acquire()
        await closing[0]
        async with aio.connect(url) as other:
            await (await other.lock("a").acquire(timeout=5)).release()

    asyncio.run(main())


def test_closing_without_waiting_withdraws_what_is_being_acquired(url: str) -> None:
    """As at interpreter exit, or when the client's loop is closed: the caller does not run again to clean up."""
    client = holdfast.connect(url)
    client.ping()
    core = client._opened
    assert core is not None
    core.session = ClosesAfter(core.session, core.begin_close)
    with pytest.raises(holdfast.UsageError, match="closed"):
        client.lock("a").acquire()
    with holdfast.connect(url) as other:
        other.lock("a").acquire(timeout=5).release()


def test_a_withdrawal_of_a_closed_client_starts_no_thread(url: str) -> None:
    client = holdfast.connect(url)
    client.ping()
    core = client._opened
    assert core is not None
    client.close()
    before = set(threading.enumerate())
    core.withdraw(core.new_attempt(client.lock("a")._policy, non_barging=False))
    assert not core.watchdog.started
    assert not new_threads(before)
