"""Both colours from one test body: clients, and callers that are threads or tasks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from holdfast._runtime import clock
from holdfast.testing.conformance.actors import Actor, Call, TaskActor, ThreadActor
from holdfast.testing.conformance.opening import Colour, Source

COLOURS: Final = pytest.mark.parametrize("colour", ["sync", "async"])
#: What happens "at once" may take this much longer on a busy machine, which may stand still for a second. What would be
#: wrong has to take longer still: see PATIENT.
SLACK: Final = 1.5
#: A request_timeout: so long waits who waits for an answer that nobody gives.
PATIENT: Final = 10.0


class Company:
    """Clients of one colour, on any server, and their callers. All of them end with the company."""

    def __init__(self, colour: Colour) -> None:
        self.colour: Final = colour
        self._clients: list[Any] = []
        self._callers: list[Actor] = []
        self._kept: list[Any] = []
        self._first = self.caller()

    def connect(self, url: str, **options: Any) -> Any:
        client = Source(url).open(self.colour, **options)
        self._clients.append(client)
        return client

    def caller(self) -> Actor:
        """A thread, or a task: somebody who does not re-enter what others hold."""
        caller = (ThreadActor if self.colour == "sync" else TaskActor)(f"caller-{len(self._callers)}")
        self._callers.append(caller)
        return caller

    async def do(self, call: Call) -> Any:
        """Have the first caller make a call; its result or its exception."""
        return await self._first.do(call)

    async def acquire(self, client: Any, name: str, timeout: float | None = 5.0, **policy: Any) -> Any:
        """A lease that the company keeps until its clients are closed: dropped, it would warn."""
        lease = await self.do(lambda: client.lock(name, **policy).acquire(timeout=timeout))
        self._kept.append(lease)
        return lease

    async def close(self) -> None:
        for client in self._clients:
            await (asyncio.to_thread(client.close) if self.colour == "sync" else client.close())
        for caller in self._callers:
            await caller.end()


@contextlib.asynccontextmanager
async def company(colour: Colour) -> AsyncIterator[Company]:
    """A company that ends whatever happens; the test's own failure is the one to see."""
    ours = Company(colour)
    try:
        yield ours
    except BaseException:
        with contextlib.suppress(Exception):
            await ours.close()
        raise
    await ours.close()


class Told:
    """``lock(on_lost=Told())``: what a holder was told, and when on the clock of belief."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self.reasons: list[str | None] = []

    def __call__(self, lease: Any) -> None:
        self.at.append(clock.now())
        self.reasons.append(lease.lost_reason)
