"""Closing while an acquire is between the engine's answer and its caller."""

from __future__ import annotations

import asyncio
import threading
import uuid
from typing import Any

import pytest

import holdfast
from holdfast import aio
from holdfast._core.core import Core
from tests.support.leaks import new_threads


class ClosesAfter:
    """A session during whose ``acquire``, when the engine has granted it, ``then`` happens. ``direct``: whether the
    engine is asked directly."""

    def __init__(self, session: Any, then: Any) -> None:
        self._session = session
        self._then = then

    async def acquire(self, claim: Any, timeout: float) -> Any:
        answer = await self._session.acquire(claim, timeout)
        self._then()
        return answer

    def acquire_directly(self, *args: Any) -> Any:
        answer = self._session.acquire_directly(*args)
        self._then()
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


def interpose(core: Core, then: Any, *, direct: bool) -> None:
    session: Any = ClosesAfter(core.session, then)
    core.session, core.direct = session, session if direct else None


@pytest.fixture
def url() -> str:
    return f"memory:{uuid.uuid4().hex}"


@pytest.mark.parametrize("direct", [True, False])
def test_a_grant_that_arrives_after_close_is_withdrawn(url: str, direct: bool) -> None:
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
    interpose(core, close_on_another_thread, direct=direct)
    with pytest.raises(holdfast.UsageError, match="closed"):
        client.lock("a").acquire()
    closing[0].join()
    with holdfast.connect(url) as other:
        other.lock("a").acquire(timeout=5).release()


@pytest.mark.parametrize("direct", [True, False])
def test_an_async_grant_that_arrives_after_close_is_withdrawn(url: str, direct: bool) -> None:
    async def main() -> None:
        client = aio.connect(url)
        await client.ping()
        core = client._opened
        assert core is not None
        closing: list[asyncio.Task[None]] = []

        def close() -> None:
            core._shut()  # what close() does first, before it waits for this acquire
            closing.append(asyncio.create_task(client.close()))

        interpose(core, close, direct=direct)
        with pytest.raises(holdfast.UsageError, match="closed"):
            await client.lock("a").acquire()
        await closing[0]
        async with aio.connect(url) as other:
            await (await other.lock("a").acquire(timeout=5)).release()

    asyncio.run(main())


@pytest.mark.parametrize("direct", [True, False])
def test_closing_without_waiting_withdraws_what_is_being_acquired(url: str, direct: bool) -> None:
    """As at interpreter exit, or when the client's loop is closed: the caller does not run again to clean up."""
    client = holdfast.connect(url)
    client.ping()
    core = client._opened
    assert core is not None
    interpose(core, core.begin_close, direct=direct)
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
