"""Registers on ZooKeeper. A load and a store are one transaction each; see ``register_layout`` for the nodes.

Two things refuse a holder whose lease has ended: the guard, which the next holder's load replaces, and the node with
which it holds the lock. A transaction checks both, so a register may be forgotten together with its guard.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from kazoo.exceptions import NodeExistsError, NoNodeError

from holdfast.engines import waiter_queue
from holdfast.engines.base import RequestFailed
from holdfast.engines.registers import Cell, Guard, Look, RegisterKey, Stale, Standing
from holdfast.engines.zookeeper import register_layout as layout
from holdfast.engines.zookeeper.connection import Connection, Operation
from holdfast.engines.zookeeper.queue import LockQueue
from holdfast.engines.zookeeper.register_layout import NO_GUARD, NO_HEAD, Head, RegisterPath
from holdfast.engines.zookeeper.register_listener import ARM_WITHIN, ZooKeeperListener
from holdfast.engines.zookeeper.register_reading import Reading
from holdfast.engines.zookeeper.register_removal import RegisterRemoval
from holdfast.engines.zookeeper.reply import Reply
from holdfast.engines.zookeeper.requests import Requester
from holdfast.errors import EngineRefused

#: A server closes the connection of a client that sends a larger request (jute.maxbuffer), in bytes.
_LARGEST_REQUEST: Final = 0xFFFFF
#: Of each operation beside its path and data: header, lengths, version, access control list.
_OPERATION: Final = 100
#: How often a request is repeated because others change the same nodes.
_ATTEMPTS: Final = 20
#: The number of registers whose queue is remembered for the next look.
_MOST_SEEN: Final = 1000


class _Seen(NamedTuple):
    """What the looks at one register have found, and of which state of its nodes."""

    queue_changed: int
    waiters_changed: int
    looks: dict[str, Look]
    present: frozenset[str]


class ZooKeeperRegisters:
    """See :class:`holdfast.engines.registers.Registers`. They use the client's own session, whatever a lock's ttl."""

    fused = False

    def __init__(self, requester: Requester, queue: LockQueue, base: str, token_ttl: float | None) -> None:
        self._requester = requester
        self._queue = queue
        self._base = base
        self._removal = None if token_ttl is None else RegisterRemoval(requester, base, token_ttl)
        self._seen: dict[RegisterPath, _Seen] = {}

    # -- with a guard ----------------------------------------------------------------------------------------------

    async def load(self, key: RegisterKey, guard: Guard, timeout: float) -> Cell | Stale:
        path, until = self._path(key), self._until(timeout)
        connection = await self._requester.connected(None, timeout)
        for attempt in range(_ATTEMPTS):
            # A server may lag behind; then the transaction is refused, and the second look is up to date.
            head = await self._head(connection, path, until, synced=attempt > 0)
            if head is None:
                await self._create(connection, path, key, until)
                continue
            if head.refuses(guard):
                return head.stale
            holding = self._holding(connection, guard)
            if head.guard == guard:
                entering = [connection.check(path.guard(guard))]
            else:
                entering = [connection.removal(path.guard(head.guard)), connection.persistent(path.guard(guard), b"")]
            refused, cell = await self._change_and_read(connection, path, [*holding, *entering], until)
            if refused is not None and refused[0] < len(holding):
                return await self._stale(connection, path, until)
            if refused is None and cell is not None:
                return cell
        raise _busy(path)

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
        path, until, presences = self._path(key), self._until(timeout), self._requester.hub.presences
        connection = await self._requester.connected(None, timeout)
        wake = list(dict.fromkeys(wake))
        for _ in range(_ATTEMPTS):
            guarded = [connection.check(path.guard(guard)), connection.write(path.root, b"", version)]
            written = [*self._holding(connection, guard), *guarded]
            if value is not None:
                written.append(connection.write(path.value, value))
            if queue is not None:
                written.append(connection.write(path.queue, queue.encode()))
            joining = [] if join is None else [self._join(connection, path, join)]
            waking = [connection.write(path.waiter(waiter), b"") for waiter in wake]
            refused = await self._change(connection, [*written, *joining, *waking], key, until)
            if refused is None:
                self._settle(connection, path, queue, join)
                return version + 1
            if refused[0] < len(written):
                # Also if the value or the queue is missing: the register was removed in the meantime.
                return await self._stale(connection, path, until)
            if refused[0] < len(written) + len(joining) and join is not None:
                if isinstance(refused[1], NodeExistsError):
                    presences.exists(connection, path, join)
                else:
                    presences.missing(path, join)
            else:
                present = await self._present(connection, path, until)
                wake = [waiter for waiter in wake if waiter in present]
        raise _busy(path)

    def _join(self, connection: Connection, path: RegisterPath, waiter: str) -> Operation:
        node = path.waiter(waiter)
        present = self._requester.hub.presences.looked(connection, path, waiter)
        return connection.check(node) if present else connection.ephemeral(node, b"")

    def _settle(self, connection: Connection, path: RegisterPath, queue: str | None, join: str | None) -> None:
        """After a store: those that have left the queue need not be present any more."""
        presences = self._requester.hub.presences
        if join is not None:
            presences.exists(connection, path, join)
        if queue is not None:
            queued = {entry.waiter for entries in waiter_queue.parse(queue).values() for entry in entries}
            presences.keep_only(path, queued if join is None else queued | {join})

    def _holding(self, connection: Connection, guard: Guard) -> list[Operation]:
        """The node with which the guard's owner holds the lock, if it is this client's."""
        place = self._requester.hub.place_of(guard.owner)
        return [] if place is None else [connection.check(place.path)]

    # -- without a guard -------------------------------------------------------------------------------------------

    async def peek(self, key: RegisterKey, timeout: float) -> Cell:
        path, until = self._path(key), self._until(timeout)
        connection = await self._requester.connected(None, timeout)
        for _ in range(_ATTEMPTS):
            connection.sync(path.root, self._requester.reply().receiver)  # a server may lag behind
            try:
                cell = await Reading(self._requester, connection, path).cell(until)
            except NoNodeError:
                return Cell()
            if cell is not None:
                return cell
        raise _busy(path)

    async def swap(self, key: RegisterKey, version: int, value: bytes, timeout: float) -> Cell:
        path, until = self._path(key), self._until(timeout)
        connection = await self._requester.connected(None, timeout)
        changes = [connection.write(path.root, b"", version), connection.write(path.value, value)]
        _check_size(changes, key)
        for _ in range(_ATTEMPTS):
            refused, cell = await self._change_and_read(connection, path, changes, until)
            if refused is not None and isinstance(refused[1], NoNodeError):
                await self._create(connection, path, key, until)
            elif cell is not None:
                return cell
        raise _busy(path)

    async def look(self, key: RegisterKey, waiter: str, timeout: float) -> Look:
        return (await self.look_all(key, (waiter,), timeout)).get(waiter, Look(Standing.NOT_QUEUED))

    async def look_all(self, key: RegisterKey, waiters: Collection[str], timeout: float) -> Mapping[str, Look]:
        """Two small requests, as long as neither the queue nor the waiters have changed since the last look of this
        client; and one for each waiter whose node does not exist yet."""
        requester, path, until = self._requester, self._path(key), self._until(timeout)
        connection = await requester.connected(None, timeout)
        presences = requester.hub.presences
        created: list[tuple[str, Reply]] = []
        for waiter in waiters:
            if not presences.looked(connection, path, waiter):
                created.append((waiter, requester.reply()))
                connection.multi([connection.ephemeral(path.waiter(waiter), b"")], created[-1][1].receiver)
        queue, present = requester.reply(), requester.reply()
        connection.stat(path.queue, queue.receiver)
        connection.stat(path.waiters, present.receiver)
        await requester.wait_for_last(present, timeout)
        for waiter, reply in created:
            refused = await requester.outcome(connection, reply, self._left(until))
            if refused is None or isinstance(refused[1], NodeExistsError):
                presences.exists(connection, path, waiter)
        queue_stat = await requester.answer(connection, queue, self._left(until))
        present_stat = await requester.answer(connection, present, self._left(until))
        if queue_stat is None or present_stat is None:
            for waiter in waiters:
                presences.forget(path, waiter)
            return {}
        seen = self._seen.get(path)
        if seen is None or (seen.queue_changed, seen.waiters_changed) != (queue_stat.mzxid, present_stat.pzxid):
            try:
                seen = await self._see(connection, path, until)
            except NoNodeError:
                return {}
        for waiter in waiters:
            if waiter not in seen.present:
                presences.missing(path, waiter)  # removed with an earlier session, or by an operator
        return seen.looks

    async def _see(self, connection: Connection, path: RegisterPath, until: float) -> _Seen:
        """Read the queue and the waiters. Raises NoNodeError."""
        requester = self._requester
        queue, waiters = requester.reply(), requester.reply()
        connection.get(path.queue, queue.receiver)
        connection.children_and_stat(path.waiters, waiters.receiver)
        await requester.wait_for_last(waiters, self._left(until))
        text, queue_stat = await requester.read(connection, queue, self._left(until))
        children, waiters_stat = await requester.answer(connection, waiters, self._left(until))
        present = layout.waiters(children)
        seen = _Seen(queue_stat.mzxid, waiters_stat.pzxid, waiter_queue.looks(text.decode(), present), present)
        if len(self._seen) >= _MOST_SEEN:
            self._seen.clear()
        self._seen[path] = seen
        return seen

    def listener(self, key: RegisterKey, waiter: str | None) -> ZooKeeperListener:
        path = self._path(key)
        node = path.root if waiter is None else path.waiter(waiter)
        return ZooKeeperListener(self._requester, node, partial(self._prepare, key, waiter))

    async def _prepare(self, key: RegisterKey, waiter: str | None) -> Connection:
        """Create what a listener watches."""
        path, until, presences = self._path(key), self._until(ARM_WITHIN), self._requester.hub.presences
        connection = await self._requester.connected(None, ARM_WITHIN)
        for _ in range(_ATTEMPTS):
            watched = connection.check(path.root) if waiter is None else self._join(connection, path, waiter)
            refused = await self._change(connection, [watched], key, until)
            if refused is None or isinstance(refused[1], NodeExistsError):
                if waiter is not None:
                    presences.exists(connection, path, waiter)
                return connection
            if waiter is not None:
                presences.missing(path, waiter)
            await self._create(connection, path, key, until)
        raise _busy(path)

    # -- nodes -----------------------------------------------------------------------------------------------------

    def _path(self, key: RegisterKey) -> RegisterPath:
        return RegisterPath.of(self._base, key)

    def _until(self, timeout: float) -> float:
        return self._requester.runtime.now() + timeout

    def _left(self, until: float) -> float:
        return max(0.0, until - self._requester.runtime.now())

    async def _head(self, connection: Connection, path: RegisterPath, until: float, *, synced: bool) -> Head | None:
        """None if the register does not exist."""
        if synced:
            connection.sync(path.root, self._requester.reply().receiver)
        found = self._requester.reply()
        connection.children_and_stat(path.root, found.receiver)
        try:
            children, stat = await self._requester.answer(connection, found, self._left(until))
        except NoNodeError:
            return None
        return layout.head(children, stat.version)

    async def _stale(self, connection: Connection, path: RegisterPath, until: float) -> Stale:
        """After a refusal, so no server lags behind."""
        return (await self._head(connection, path, until, synced=False) or NO_HEAD).stale

    async def _present(self, connection: Connection, path: RegisterPath, until: float) -> frozenset[str]:
        return layout.waiters(await self._requester.children(connection, path.waiters, self._left(until)))

    async def _change(
        self, connection: Connection, operations: Sequence[Operation], key: RegisterKey, until: float
    ) -> tuple[int, Exception] | None:
        _check_size(operations, key)
        changed = self._requester.reply()
        connection.multi(operations, changed.receiver)
        return await self._requester.outcome(connection, changed, self._left(until))

    async def _change_and_read(
        self, connection: Connection, path: RegisterPath, operations: Sequence[Operation], until: float
    ) -> tuple[tuple[int, Exception] | None, Cell | None]:
        """In one flight. The second is None if the register does not exist, or others have changed it meanwhile."""
        changed = self._requester.reply()
        connection.multi(operations, changed.receiver)
        reading = Reading(self._requester, connection, path)
        await reading.wait(until)
        refused = await self._requester.outcome(connection, changed, self._left(until))
        try:
            return refused, await reading.cell(until)
        except NoNodeError:
            return refused, None

    async def _create(self, connection: Connection, path: RegisterPath, key: RegisterKey, until: float) -> None:
        """Create the register, if there is none. Removes a few others that have not been used for long."""
        await self._queue.make_path(connection, path.parent, self._left(until))
        nodes = (path.root, path.guard(NO_GUARD), path.value, path.queue, path.waiters)
        refused = await self._change(connection, [connection.persistent(node, b"") for node in nodes], key, until)
        if refused is None and self._removal is not None and not key.durable:
            await self._removal.run(connection, path, until)


def _check_size(operations: Sequence[Operation], key: RegisterKey) -> None:
    """Refuse what a server would answer by closing the connection: with it all locks of the session are at risk."""
    size = sum(len(each.path) + len(getattr(each, "data", b"")) + _OPERATION for each in operations)
    if size > _LARGEST_REQUEST:
        raise EngineRefused(
            f"{size} bytes for {key.part} are too many: a request to ZooKeeper has at most {_LARGEST_REQUEST}",
            name=key.name,
        )


def _busy(path: RegisterPath) -> RequestFailed:
    return RequestFailed(f"{path.root} is changed by others all the time", may_have_happened=True)
