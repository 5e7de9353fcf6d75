"""Withdrawing claims, with many pipelined requests.

All nodes of a claim are removed, whichever session created them. A node that could not be removed in time becomes a
leftover: the core retries too, but only for one ttl, while the session may last for years.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kazoo.exceptions import NoNodeError

from holdfast.engines.base import Found, RequestFailed, SimpleAttempt, Withdrawn
from holdfast.engines.zookeeper import layout, order
from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.queue import LockQueue, id_of
from holdfast.engines.zookeeper.reply import Reply
from holdfast.engines.zookeeper.requests import Requester
from holdfast.errors import EngineRefused

#: How many requests are in flight at once. More would gain nothing, and delay requests that are sent after them.
_AT_ONCE: Final = 256
#: From this many on, a session that has no other nodes is ended instead: one request removes all of its nodes.
_MANY: Final = 200


class Withdrawal:
    """One round of withdrawals, of at most ``timeout`` altogether."""

    def __init__(self, requester: Requester, queue: LockQueue, timeout: float) -> None:
        self._requester = requester
        self._queue = queue
        self._until = requester.runtime.now() + timeout

    async def run(self, attempts: Sequence[SimpleAttempt]) -> Sequence[Withdrawn]:
        answers: dict[str, Withdrawn] = {}  # by the claim's owner
        if len(attempts) >= _MANY:
            answers = await self._end_sessions(attempts)
        left = [attempt for attempt in attempts if attempt.claim.owner not in answers]
        for start in range(0, len(left), _AT_ONCE):
            await self._remove(left[start : start + _AT_ONCE], answers)
        return [answers[attempt.claim.owner] for attempt in attempts]

    async def _remove(self, attempts: Sequence[SimpleAttempt], answers: dict[str, Withdrawn]) -> None:
        if self._requester.runtime.now() >= self._until:
            failure = RequestFailed("there was no time left to withdraw it", may_have_happened=False)
            answers.update(dict.fromkeys((attempt.claim.owner for attempt in attempts), failure))
            return
        removals = [_Removal(self._requester, self._queue, attempt) for attempt in attempts]
        for removal in removals:
            removal.begin()
        for removal in removals:
            await removal.look(self._until)
        for attempt, removal in zip(attempts, removals, strict=True):
            answers[attempt.claim.owner] = await removal.outcome(self._until)

    async def _end_sessions(self, attempts: Sequence[SimpleAttempt]) -> dict[str, Withdrawn]:
        """End sessions that have only these claims, as when a client with thousands of leases is closed."""
        requester, hub = self._requester, self._requester.hub
        carried: dict[Connection, list[SimpleAttempt]] = {}
        for attempt in attempts:
            if (place := hub.place(attempt)) is not None:
                carried.setdefault(place.connection, []).append(attempt)
        answers: dict[str, Withdrawn] = {}
        for connection, group in carried.items():
            if len(group) >= _MANY and hub.retire(connection, {attempt.claim.owner for attempt in group}):
                ended = await requester.wait_until_ended([connection], self._until)
                for attempt in group:
                    answers[attempt.claim.owner] = Found.OURS if ended else _UNCONFIRMED
                    if ended:
                        hub.forget(attempt)
        return answers


_UNCONFIRMED: Final = RequestFailed("ZooKeeper did not confirm the end of the session in time", may_have_happened=True)


class _Removal:
    """The removal of one claim's nodes."""

    def __init__(self, requester: Requester, queue: LockQueue, attempt: SimpleAttempt) -> None:
        self._requester = requester
        self._queue = queue
        self._attempt = attempt
        self._connection: Connection | None = None
        self._listed: list[tuple[str, Reply]] = []
        self._deleted: list[Reply] = []
        self._answer: Withdrawn | None = None

    def begin(self) -> None:
        hub, attempt = self._requester.hub, self._attempt
        place = hub.place(attempt)
        connection = self._connection = hub.existing(attempt.claim.ttl) if place is None else place.connection
        if connection is None or connection.ended:
            self._end(Found.GONE)  # nothing was ever sent, or the node ended with the session
        elif place is not None and place.ended:
            self._end(Found.ENDED)
        elif not connection.connected:
            self._fail(RequestFailed("ZooKeeper is not connected at present", may_have_happened=False))
        elif place is not None and not place.granting:
            for path in place.paths:
                self._delete(path)
        else:
            for folder in layout.folders(self._queue.path(attempt.claim.name), attempt.claim.mode.kind):
                listed = self._requester.reply()
                self._listed.append((folder, listed))
                connection.sync(folder, self._requester.reply().receiver)  # a server that lags behind must not hide it
                connection.children(folder, listed.receiver)

    async def look(self, until: float) -> None:
        """Remove nodes whose creation was not answered."""
        for folder, listed in self._listed:
            try:
                children: Sequence[str] = await self._arrived(listed, until)
            except NoNodeError:
                continue
            except (RequestFailed, EngineRefused) as failure:
                self._fail(failure)
                return
            for node in order.find_own(children, id_of(self._attempt)):
                self._delete(f"{folder}/{node}")

    async def outcome(self, until: float) -> Withdrawn:
        found = Found.GONE
        for reply in self._deleted:
            try:
                await self._arrived(reply, until)
                found = Found.OURS
            except NoNodeError:
                pass
            except (RequestFailed, EngineRefused) as failure:
                self._fail(failure)
        if self._answer is None:
            self._end(found)
        assert self._answer is not None
        return self._answer

    def _delete(self, path: str) -> None:
        assert self._connection is not None
        deleted = self._requester.reply()
        self._deleted.append(deleted)
        self._connection.delete(path, deleted.receiver)

    async def _arrived(self, reply: Reply, until: float) -> Any:
        assert self._connection is not None
        return await self._requester.answer(self._connection, reply, max(0.0, until - self._requester.runtime.now()))

    def _end(self, found: Found) -> None:
        self._requester.hub.forget(self._attempt)
        self._answer = found

    def _fail(self, failure: RequestFailed | EngineRefused) -> None:
        self._requester.hub.forget(self._attempt)
        self._answer = failure
        if self._connection is not None and isinstance(failure, RequestFailed):
            self._queue.leave_behind(self._connection, self._attempt)
