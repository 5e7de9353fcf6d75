"""The world of one conformance test: its clients, actors and lock names; and the checks at its end."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, TypeVar

from holdfast._runtime import clock
from holdfast.engines.base import LockState
from holdfast.testing.conformance.actors import Actor, Call, TaskActor, ThreadActor, settled
from holdfast.testing.conformance.opening import Api, Source

T = TypeVar("T")

#: How long something may take that should happen immediately: long, since the machine may be busy.
_SOON: Final = 3.0
_POLL: Final = 0.004


class World:
    """One engine through one API, sync or async.

    Names returned by ``name`` are unique to this world, so tests may share a server.
    """

    def __init__(self, source: Source, api: Api) -> None:
        self.source = source
        self.api: Final = api
        self.soon: Final = source.paced(_SOON)
        self.prefix: Final = f"conformance-{uuid.uuid4().hex[:12]}:"
        self._clients: list[Any] = []
        self._actors: list[Actor] = []
        self._main: Actor | None = None
        self._other_client: Any = None
        self._kept: list[Any] = []
        self._threads_before = _watchdogs()

    # -- creating ----------------------------------------------------------------------------------------------------

    def connect(self, **keywords: Any) -> Any:
        """A new client, closed at the end."""
        client = self.source.open(self.api, **keywords)
        self._clients.append(client)
        return client

    def actor(self) -> Actor:
        """A new thread or task, ended at the end."""
        kind = ThreadActor if self.api == "sync" else TaskActor
        actor = kind(f"actor-{len(self._actors)}")
        self._actors.append(actor)
        return actor

    def actors(self, number: int) -> list[Actor]:
        return [self.actor() for _ in range(number)]

    def name(self, name: str = "it") -> str:
        """A lock name of this world."""
        return self.prefix + name

    def keep(self, lease: T) -> T:
        """Keep a reference to a lease until its client is closed: an unreleased lease warns when it is dropped."""
        self._kept.append(lease)
        return lease

    def chain(self, *calls: Call) -> Call:
        """One call for an actor: runs these calls one after another, and returns the last result."""

        def run() -> Any:
            return [call() for call in calls][-1]

        async def run_async() -> Any:
            return [await settled(call()) for call in calls][-1]

        return run if self.api == "sync" else run_async

    def paced(self, seconds: float) -> float:
        """A ttl, wait or deadline that is short only to keep the case fast, multiplied by the engine's pace."""
        return self.source.paced(seconds)

    @property
    def lasting(self) -> float:
        """A ttl for leases that must not be lost, even after a scheduler stall of a second."""
        return self.source.lasting

    # -- querying ----------------------------------------------------------------------------------------------------

    async def do(self, call: Call) -> Any:
        """Run a call for which the caller does not matter."""
        if self._main is None:
            self._main = self.actor()
        return await self._main.do(call)

    async def inspect(self, client: Any, name: str) -> LockState:
        state: LockState = await self.do(lambda: client.inspect(name))
        return state

    async def list_locks(self, client: Any, prefix: str | None = None) -> list[LockState]:
        """The locks that ``client.locks`` lists for ``prefix``, by default this world's."""
        wanted = self.prefix if prefix is None else prefix

        async def collect() -> list[LockState]:
            return [state async for state in client.locks(wanted)]

        call: Call = collect if self.api == "async" else lambda: list(client.locks(wanted))
        found: list[LockState] = await self.do(call)
        return found

    async def is_free(self, name: str) -> bool:
        """Whether another client gets the lock with one attempt."""
        if self._other_client is None:
            self._other_client = self.connect()
        lease = await self.do(self._other_client.lock(name).try_acquire)
        if lease is not None:
            await self.do(lease.release)
        return lease is not None

    async def until(self, condition: Callable[[], Any], within: float | None = None) -> None:
        """Poll until ``condition()`` is true. The test fails after ``within`` seconds, by default ``soon``."""
        limit = self.soon if within is None else within
        deadline = clock.now() + limit
        while not await settled(condition()):
            assert clock.now() < deadline, f"did not come true within {limit:g} s"
            await asyncio.sleep(_POLL)

    async def until_renewed(self, lease: Any) -> None:
        """Wait until the engine has confirmed a renewal of ``lease``."""
        before = ends(lease)
        await self.until(lambda: not lease.held or ends(lease) > before + 0.1 * lease.ttl)
        assert lease.held, f"lost: {lease.lost_reason}"

    async def until_free(self, name: str) -> None:
        await self.until(lambda: self.is_free(name))

    async def until_waiting(self, client: Any, name: str, waiters: int = 1) -> None:
        """Wait until the engine knows of ``waiters`` waiters for ``name``."""

        async def known() -> bool:
            return (await self.inspect(client, name)).waiters >= waiters

        await self.until(known)

    async def until_waiters_are_gone(self, client: Any, name: str) -> None:
        """Wait until the engine knows of no waiter for ``name``: one that gave up may leave in the background."""

        async def gone() -> bool:
            return (await self.inspect(client, name)).waiters == 0

        await self.until(gone)

    async def until_queued(self, client: Any, name: str, waiters: int = 1, elsewhere: int = 0) -> None:
        """Wait until ``waiters`` callers of ``client`` queue for ``name``: in this process, or, if the engine keeps
        strict order, at the engine, behind ``elsewhere`` waiters of other clients."""
        if client._engine.strict_order:
            await self.until_waiting(client, name, waiters + elsewhere)
        else:
            await self.until(lambda: client._opened is not None and client._opened.queue.waiting(name) >= waiters)

    async def count_requests(self, client: Any) -> Counter[str]:
        """Count the engine calls of ``client``'s callers (not of its watchdog) from now on, by method."""
        await self.do(client.ping)
        core = client._opened
        session = _CountedSession(core.session)
        core.session, core.direct = session, core.direct and session
        return session.counted

    # -- ending ----------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close all clients and end all actors. Then no lock and no watchdog of this world may be left."""
        for client in self._clients:
            await (asyncio.to_thread(client.close) if self.api == "sync" else client.close())
        for actor in self._actors:
            await actor.end()
        self._actors, self._main, self._kept = [], None, []
        await self._check_nothing_is_left()

    async def _check_nothing_is_left(self) -> None:
        probe = self.source.open(self.api)
        try:

            async def nothing_held() -> bool:
                return not await self.list_locks(probe)

            await self.until(nothing_held)
        finally:
            await self.do(probe.close)
            for actor in self._actors:
                await actor.end()
        await self.until(lambda: _watchdogs() <= self._threads_before)


def by_session(lease: Any) -> bool:
    """Whether the lifetime of ``lease`` depends on a session of the engine, and not on its ttl alone."""
    return bool(lease._hold.grant.by_session)


def ends(lease: Any) -> float:
    """When ``lease`` expires if it is not renewed; a little too early if this caller is delayed."""
    now = clock.now()
    return now + float(lease.remaining)


class _CountedSession:
    def __init__(self, session: Any, counted: Counter[str] | None = None) -> None:
        self._session = session
        self.counted: Counter[str] = Counter() if counted is None else counted

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._session, name)
        if name == "registers":
            return method and _CountedSession(method, self.counted)
        if name in ("attempt", "acquired", "released") or not callable(method):
            return method  # no request

        def counted(*arguments: Any, **keywords: Any) -> Any:
            answer = method(*arguments, **keywords)
            if answer is not None or not name.endswith("_directly"):  # else nothing was sent
                self.counted[name.removesuffix("_directly")] += 1
            return answer

        return counted


def _watchdogs() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "holdfast-watchdog"}


@contextlib.asynccontextmanager
async def open_world(source: Source, api: Api) -> AsyncIterator[World]:
    """A world that is always cleaned up, and checked for leftovers only if the test succeeded."""
    world = World(source, api)
    try:
        yield world
    except BaseException:
        with contextlib.suppress(Exception):
            await world.close()
        raise
    await world.close()
