"""Helpers for tests of Redlock: the owners of a lock on five servers, and proxies in front of the servers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Final, Self, overload

import holdfast
from holdfast.testing.conformance import Source
from holdfast.testing.conformance.opening import Api
from holdfast.testing.conformance.world import World, open_world
from holdfast.testing.faults import Words
from holdfast.testing.proxy import FaultProxy
from tests.servers.masters import Masters
from tests.servers.redis import RedisServer

#: A request_timeout for tests in which all five servers must answer. Each step of an acquire or a release has a quarter
#: of it, so that a server that stalls for a second still answers in time.
LONG_TIMEOUT: Final = 6.0
#: A ttl of leases that must not be lost: it outlasts a stall of a second at any time between two renewals.
LASTING: Final = 2.4
#: A time limit of repairs in the background: a server that was late is skipped for up to ten seconds.
REPAIR_TIME: Final = 20.0


def on(url: str, api: Api) -> contextlib.AbstractAsyncContextManager[World]:
    """A world of one API: clients, and threads or tasks that use them. At its end no lock may be left."""
    return open_world(Source(url), api)


async def connect_to_all(world: World, client: Any) -> None:
    """Connects the client to all servers and loads its scripts there, so that a fault hits the intended request."""

    async def connected_everywhere() -> bool:
        with contextlib.suppress(holdfast.EngineUnavailable):  # temporary, for a client with a short limit
            await world.do((await world.do(client.lock(world.name("first")).acquire)).release)
        return not client._opened.session._servers.health.ailing

    await world.until(connected_everywhere, within=REPAIR_TIME)


def owners(masters: Masters, name: str) -> list[str | None]:
    """The owner of ``name`` on each server; None: it is free."""
    found: list[list[str]] = [server.ask("HKEYS", name) for server in masters.servers]
    return [fields[0] if fields else None for fields in found]


def has_tombstone(server: RedisServer, name: str, owner: str) -> bool:
    return bool(server.ask("EXISTS", f"holdfast_lock:{{{name}}}:gone:{owner}"))


def owner_in(request: Words) -> str:
    """The owner in a request of an acquire script."""
    return request[3 + int(request[2])].decode()


class Proxies:
    """A fault proxy in front of each of five masters. ``url`` leads through all of them."""

    def __init__(self, masters: Masters) -> None:
        self._ending = contextlib.ExitStack()
        self._each = [FaultProxy(server.host, server.port) for server in masters.servers]

    def __enter__(self) -> Self:
        for proxy in self._each:
            self._ending.enter_context(proxy)
        return self

    def __exit__(self, *_: Any) -> None:
        self._ending.close()

    @overload
    def __getitem__(self, place: int) -> FaultProxy: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[FaultProxy]: ...
    def __getitem__(self, place: int | slice) -> FaultProxy | Sequence[FaultProxy]:
        return self._each[place]

    def __iter__(self) -> Iterator[FaultProxy]:
        return iter(self._each)

    @property
    def url(self) -> str:
        return f"redlock://{','.join(f'{proxy.host}:{proxy.port}' for proxy in self)}"
