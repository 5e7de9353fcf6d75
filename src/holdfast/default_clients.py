"""The clients behind ``@holdfast.locked``: one for sync functions, and one for each event loop.

A client is made by ``connect()`` at the first call, so ``configure()`` may be called after decorating. After another
``configure()`` the next call gets a new client. The old client stays open while locks are held through it: a sync
client ends by itself when none is, an async client with its loop. Environment and settings file are read when a client
is made.

No lock is used, since a signal or a fork may come between any two steps. Two threads may both make a client; both then
use the one that was stored first, and the other one was never opened.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast import settings
from holdfast._runtime.loop_end import at_loop_end
from holdfast.errors import UsageError

if TYPE_CHECKING:
    import asyncio

    from holdfast.aio import AsyncClient
    from holdfast.client import Client


class _Sync(NamedTuple):
    configured: object  #: kept alive, so that its id is not reused
    client: Client


class _Async(NamedTuple):
    configured: object
    loop: Any
    client: AsyncClient
    closing: AsyncGenerator[None, None]  #: closes it before its loop


_sync: Final[dict[int, _Sync]] = {}
_async: Final[dict[tuple[int, int], _Async]] = {}


def sync_client() -> Client:
    """The default client of sync functions."""
    configured = settings.configured()
    found = _sync.get(id(configured))
    return _make_sync(configured) if found is None else found.client


def _make_sync(configured: object) -> Client:
    from holdfast.client import connect

    entry = _sync.setdefault(id(configured), _Sync(configured, connect()))
    for key in [key for key in _sync.copy() if key != id(configured)]:
        _sync.pop(key, None)
    return entry.client


def async_client() -> AsyncClient:
    """The default client of async functions on the running event loop."""
    asyncio: Any = sys.modules.get("asyncio")  # not imported here: it is slow to import, and without it no loop runs
    loop = None if asyncio is None else asyncio._get_running_loop()
    if loop is None:
        raise UsageError(
            "no event loop is running, and a default async client belongs to one: call this inside of it, or use "
            "locked() of a client of your own"
        )
    configured = settings.configured()
    found = _async.get((id(configured), id(loop)))
    return _make_async(configured, loop) if found is None else found.client


def _make_async(configured: object, loop: asyncio.AbstractEventLoop) -> AsyncClient:
    from holdfast.aio import connect

    for key, old in _async.copy().items():
        if old.loop.is_closed():
            _async.pop(key, None)
    client, key = connect(), (id(configured), id(loop))
    return _async.setdefault(key, _Async(configured, loop, client, at_loop_end(lambda: _close(client, key)))).client


async def _close(client: AsyncClient, key: tuple[int, int]) -> None:
    """Close and forget the client. Later calls on the same loop, as from a generator's clean-up, get a new one."""
    found = _async.get(key)
    if found is not None and found.client is client:
        _async.pop(key, None)
    await client.close()
