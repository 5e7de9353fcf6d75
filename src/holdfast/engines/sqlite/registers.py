"""The registers of a lock file."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from itertools import chain
from typing import Any, Final

from holdfast.engines import waiter_queue
from holdfast.engines.base import RequestFailed
from holdfast.engines.registers import PRESENCE, Cell, Guard, Look, RegisterKey, Stale, Standing
from holdfast.engines.sqlite import register_statements as statements
from holdfast.engines.sqlite.access import StoreAccess
from holdfast.engines.sqlite.faults import Contended
from holdfast.engines.sqlite.listener import SqliteListener
from holdfast.engines.sqlite.store import Store
from holdfast.engines.sqlite.wakeup_socket import send_wakeup
from holdfast.errors import EngineRefused

_SECOND: Final = 1_000_000
_NO_GUARD: Final = Guard(-1, "")
#: For so many waiters the queue is parsed rather than searched for each.
_PARSED_FOR: Final = 50


class SqliteRegisters:
    """See :class:`holdfast.engines.registers.Registers`. Each method is one or two statements; none waits."""

    fused = False

    def __init__(self, access: StoreAccess) -> None:
        self._access = access

    async def load(self, key: RegisterKey, guard: Guard, timeout: float) -> Cell | Stale:
        return await self._access.run_retrying(timeout, _load, key, guard)

    async def store(
        self,
        key: RegisterKey,
        guard: Guard,
        version: int,
        timeout: float,
        *,
        value: bytes | None = None,
        queue: str | None = None,
        join: str | None = None,
        wake: Collection[str] = (),
        replicas: int = 0,
    ) -> int | Stale:
        return await self._access.run_retrying(timeout, _store, key, guard, version, value, queue, join, wake)

    async def look(self, key: RegisterKey, waiter: str, timeout: float) -> Look:
        return (await self.look_all(key, (waiter,), timeout)).get(waiter, Look(Standing.NOT_QUEUED))

    async def look_all(self, key: RegisterKey, waiters: Collection[str], timeout: float) -> Mapping[str, Look]:
        return await self._access.run_retrying(timeout, _look, key, waiters)

    async def peek(self, key: RegisterKey, timeout: float) -> Cell:
        return await self._access.run_retrying(timeout, _peek, key)

    async def swap(self, key: RegisterKey, version: int, value: bytes, timeout: float) -> Cell:
        return await self._access.run_retrying(timeout, _swap, key, version, value)

    def listener(self, key: RegisterKey, waiter: str | None) -> SqliteListener:
        return SqliteListener(self._access, key, waiter)


def _load(store: Store, now: int, key: RegisterKey, guard: Guard) -> Cell | Stale:
    # Two transactions have the effect of one: if the guard is still ours when the content is read, no other hold can
    # have stored in between, and from the first one on an earlier hold cannot.
    store.write(statements.LOAD, (key.name, key.part, guard.token, guard.owner, _wall(), key.durable))
    seen, cell = _content(store, now, key)
    return cell if seen == guard else Stale(seen.token, cell.version)


def _store(
    store: Store,
    now: int,
    key: RegisterKey,
    guard: Guard,
    version: int,
    value: bytes | None,
    queue: str | None,
    join: str | None,
    wake: Collection[str],
) -> int | Stale:
    unchanged = (key.name, key.part, *guard, version)
    if join is not None:
        store.write(statements.JOIN, (*_presence(store, now, key, join), *unchanged))
    if not store.write(statements.STORE, (_wall(), queue, value, *unchanged), durable=key.durable):
        seen, cell = _content(store, now, key)
        return Stale(seen.token, cell.version)
    _wake(store, key, wake)
    return version + 1


def _look(store: Store, now: int, key: RegisterKey, waiters: Collection[str]) -> Mapping[str, Look]:
    rows = [_presence(store, now, key, waiter) for waiter in waiters]
    for first in range(0, len(rows), statements.MOST_PRESENT):
        some = rows[first : first + statements.MOST_PRESENT]
        store.write(statements.present(len(some)), tuple(chain.from_iterable(some)))
    ((queue,),) = store.read(statements.QUEUE, (key.name, key.part)) or (("",),)
    if not isinstance(queue, str):
        raise _foreign(store, key)
    # It takes a millisecond to parse a queue of a thousand waiters. Mostly none was notified: then there is nothing to
    # pass on, and the rank is not needed. An entry begins after "=" or ",".
    if len(waiters) < _PARSED_FOR and f":{waiter_queue.NOTIFIED}" not in queue:
        return {each: Look(Standing.WAITING) for each in waiters if f"={each}:" in queue or f",{each}:" in queue}
    try:
        return waiter_queue.looks(queue, _present(store, now, key))
    except ValueError as error:
        raise _foreign(store, key) from error


def _peek(store: Store, now: int, key: RegisterKey) -> Cell:
    return _content(store, now, key)[1]


def _swap(store: Store, now: int, key: RegisterKey, version: int, value: bytes) -> Cell:
    wall = _wall()
    if version == 0:
        store.write(statements.CREATE, (key.name, key.part, wall, key.durable))
    swapped = (wall, key.durable, value, key.name, key.part, version)
    if store.write(statements.SWAP, swapped, durable=key.durable):
        _wake(store, key, ())
    return _peek(store, now, key)


def _content(store: Store, now: int, key: RegisterKey) -> tuple[Guard, Cell]:
    """The register and its guard. Who is present is read after the queue: a waiter joins before it is queued."""
    rows = store.read(statements.CONTENT, (key.name, key.part))
    if not rows:
        return _NO_GUARD, Cell(present=_present(store, now, key))
    ((token, owner, version, queue, value),) = rows
    if not isinstance(queue, str) or not isinstance(value, bytes):
        raise _foreign(store, key)
    return Guard(token, owner), Cell(value, queue, version, _present(store, now, key))


def _present(store: Store, now: int, key: RegisterKey) -> frozenset[str]:
    rows = store.read(statements.WAITERS, (key.name, key.part, store.boot, now))
    dead = {process for process in {process for _, process in rows} if store.is_dead(process)}
    return frozenset(waiter for waiter, process in rows if process not in dead)


def _presence(store: Store, now: int, key: RegisterKey, waiter: str) -> tuple[Any, ...]:
    return (key.name, key.part, waiter, store.process, store.boot, now + int(PRESENCE * _SECOND))


def _wake(store: Store, key: RegisterKey, waiters: Collection[str]) -> None:
    """After the commit. Best effort, and it must not fail: the change has happened, and waiters look by themselves."""
    try:
        found = store.read(statements.SOCKETS_FOR_ALL_CHANGES, (key.name, key.part))
        for waiter in waiters:
            found += store.read(statements.SOCKET, (key.name, key.part, waiter))
        for waiter, socket_name in found:
            if socket_name and not send_wakeup(store.directory, socket_name):
                _forget_socket(store, key, waiter, socket_name)
    except (Contended, RequestFailed, EngineRefused):
        pass


def _forget_socket(store: Store, key: RegisterKey, waiter: str, socket_name: str) -> None:
    if waiter.startswith(statements.ALL_CHANGES):
        store.write(statements.STOP_LISTENING_TO_ALL, (key.name, key.part, waiter))
    else:
        store.write(statements.STOP_LISTENING, (key.name, key.part, waiter, socket_name))


def conditions(store: Store, now: int, name: str) -> dict[str, int]:
    """How many waiters each condition of a lock has."""
    queues = store.read(statements.QUEUES, (name,))
    return waiter_queue.waiting((queue, _present(store, now, RegisterKey(name, part))) for part, queue in queues)


def _wall() -> int:
    return time.time_ns() // 1000


def _foreign(store: Store, key: RegisterKey) -> EngineRefused:
    return EngineRefused(
        f"lock file {store.path}: the register {key.part!r} of {key.name!r} has content that holdfast has not written; "
        "restore a backup of the file, or remove the row",
        name=key.name,
    )
