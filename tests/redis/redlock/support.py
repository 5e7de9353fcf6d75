"""What the five servers have of a lock, and proxies in front of them."""

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

#: A request_timeout, for cases in which all five are to answer: each step of an acquire or a release has a quarter of
#: it, so that a server that stalls for a second still answers in time.
PATIENT: Final = 6.0
#: For what must not be lost: outlasts a stall of a second, wherever between two renewals it comes.
LASTING: Final = 2.4
#: What is repaired in the background may take so long: a server that was late is skipped for up to ten seconds.
MENDED: Final = 20.0


def on(url: str, api: Api) -> contextlib.AbstractAsyncContextManager[World]:
    """A world of one API: clients, threads or tasks; at its end no lock may be left."""
    return open_world(Source(url), api)


async def introduce(world: World, client: Any) -> None:
    """Have it connected to all servers, and its scripts known there, so that a fault meets the intended request."""

    async def known_everywhere() -> bool:
        with contextlib.suppress(holdfast.EngineUnavailable):  # for a moment, to a client that does not wait longer
            await world.do((await world.do(client.lock(world.name("first")).acquire)).release)
        return not client._opened.session._servers.health.ailing

    await world.until(known_everywhere, within=MENDED)


def owners(masters: Masters, name: str) -> list[str | None]:
    """The owner of ``name`` on each server; None: it is free."""
    found: list[list[str]] = [server.ask("HKEYS", name) for server in masters.servers]
    return [fields[0] if fields else None for fields in found]


def has_tombstone(server: RedisServer, name: str, owner: str) -> bool:
    return bool(server.ask("EXISTS", f"holdfast_lock:{{{name}}}:gone:{owner}"))


def owner_in(request: Words) -> str:
    """The owner that an acquire script was called with."""
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
