"""Sync and async from one test body: clients, and callers that are threads or tasks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from holdfast._runtime import clock
from holdfast.testing.conformance.actors import Actor, Call, TaskActor, ThreadActor
from holdfast.testing.conformance.opening import Api, Source

APIS: Final = pytest.mark.parametrize("api", ["sync", "async"])
#: What happens immediately may take this much longer on a busy machine, which may stall for a second. A wrong result
#: has to take longer than that: see LONG_TIMEOUT.
SLACK: Final = 1.5
#: A request_timeout: how long a caller waits for an answer that never comes.
LONG_TIMEOUT: Final = 10.0


class Clients:
    """Clients of one API, on any server, and their callers. All of them end together."""

    def __init__(self, api: Api) -> None:
        self.api: Final = api
        self._clients: list[Any] = []
        self._callers: list[Actor] = []
        self._kept: list[Any] = []
        self._first = self.caller()

    def connect(self, url: str, **options: Any) -> Any:
        client = Source(url).open(self.api, **options)
        self._clients.append(client)
        return client

    def caller(self) -> Actor:
        """A new thread or task: a caller that does not re-enter what others hold."""
        caller = (ThreadActor if self.api == "sync" else TaskActor)(f"caller-{len(self._callers)}")
        self._callers.append(caller)
        return caller

    async def do(self, call: Call) -> Any:
        """Have the first caller make a call; its result or its exception."""
        return await self._first.do(call)

    async def acquire(self, client: Any, name: str, timeout: float | None = 5.0, **policy: Any) -> Any:
        """A lease that is kept until the clients are closed: dropped, it would warn."""
        lease = await self.do(lambda: client.lock(name, **policy).acquire(timeout=timeout))
        self._kept.append(lease)
        return lease

    async def close(self) -> None:
        for client in self._clients:
            await (asyncio.to_thread(client.close) if self.api == "sync" else client.close())
        for caller in self._callers:
            await caller.end()


@contextlib.asynccontextmanager
async def open_clients(api: Api) -> AsyncIterator[Clients]:
    """Clients that are closed whatever happens; an error of the test itself has priority."""
    ours = Clients(api)
    try:
        yield ours
    except BaseException:
        with contextlib.suppress(Exception):
            await ours.close()
        raise
    await ours.close()


class LossReports:
    """``lock(on_lost=LossReports())``: the reasons that were reported, and when on the clock of deadlines."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self.reasons: list[str | None] = []

    def __call__(self, lease: Any) -> None:
        self.at.append(clock.now())
        self.reasons.append(lease.lost_reason)
