"""Withdrawing attempts: many requests are sent before the first answer is waited for.

What a claim may have left behind is removed, whichever session made it. What could not be removed in time becomes a
leftover: the core tries again, but only for a ttl, and the session may live on for years.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kazoo.exceptions import NoNodeError

from holdfast.engines.base import Found, RequestFailed, SimpleAttempt, Withdrawn
from holdfast.engines.zookeeper import order
from holdfast.engines.zookeeper.asking import Asker
from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.line import Line, id_of
from holdfast.engines.zookeeper.reply import Reply
from holdfast.errors import EngineRefused

#: So many requests are under way at once. More would gain nothing, and delay whatever is sent after them.
_AT_ONCE: Final = 256
#: From this many on, a session that carries nothing else is ended instead: one request removes all of its nodes.
_MANY: Final = 200


class Withdrawal:
    """One round, of at most ``timeout`` for all of its claims."""

    def __init__(self, asker: Asker, line: Line, timeout: float) -> None:
        self._asker = asker
        self._line = line
        self._until = asker.runtime.now() + timeout

    async def run(self, attempts: Sequence[SimpleAttempt]) -> Sequence[Withdrawn]:
        answers: dict[str, Withdrawn] = {}  # by the claim's owner
        if len(attempts) >= _MANY:
            answers = await self._end_sessions(attempts)
        left = [attempt for attempt in attempts if attempt.claim.owner not in answers]
        for start in range(0, len(left), _AT_ONCE):
            await self._remove(left[start : start + _AT_ONCE], answers)
        return [answers[attempt.claim.owner] for attempt in attempts]

    async def _remove(self, attempts: Sequence[SimpleAttempt], answers: dict[str, Withdrawn]) -> None:
        if self._asker.runtime.now() >= self._until:
            failure = RequestFailed("there was no time left to withdraw it", may_have_happened=False)
            answers.update(dict.fromkeys((attempt.claim.owner for attempt in attempts), failure))
            return
        removals = [_Removal(self._asker, self._line, attempt) for attempt in attempts]
        for removal in removals:
            removal.begin()
        for removal in removals:
            await removal.look(self._until)
        for attempt, removal in zip(attempts, removals, strict=True):
            answers[attempt.claim.owner] = await removal.outcome(self._until)

    async def _end_sessions(self, attempts: Sequence[SimpleAttempt]) -> dict[str, Withdrawn]:
        """As a client does that is closed with thousands of leases."""
        asker, hub = self._asker, self._asker.hub
        carried: dict[Connection, list[SimpleAttempt]] = {}
        for attempt in attempts:
            if (place := hub.place(attempt)) is not None:
                carried.setdefault(place.connection, []).append(attempt)
        answers: dict[str, Withdrawn] = {}
        for connection, group in carried.items():
            if len(group) >= _MANY and hub.retire(connection, {attempt.claim.owner for attempt in group}):
                ended = await asker.until_over([connection], self._until)
                for attempt in group:
                    answers[attempt.claim.owner] = Found.OURS if ended else _UNCONFIRMED
                    if ended:
                        hub.forget(attempt)
        return answers


_UNCONFIRMED: Final = RequestFailed("ZooKeeper did not confirm the end of the session in time", may_have_happened=True)


class _Removal:
    """Of one claim's node."""

    def __init__(self, asker: Asker, line: Line, attempt: SimpleAttempt) -> None:
        self._asker = asker
        self._attempt = attempt
        self._path = line.path(attempt.claim.name)
        self._connection: Connection | None = None
        self._listed: Reply | None = None
        self._deleted: list[Reply] = []
        self._answer: Withdrawn | None = None

    def begin(self) -> None:
        hub, attempt = self._asker.hub, self._attempt
        place = hub.place(attempt)
        connection = self._connection = hub.existing(attempt.claim.ttl) if place is None else place.connection
        if connection is None or connection.over:
            self._end(Found.GONE)  # nothing was ever sent, or it went with the session
        elif place is not None and place.over:
            self._end(Found.ENDED)
        elif not connection.connected:
            self._fail(RequestFailed("ZooKeeper is not connected at present", may_have_happened=False))
        elif place is not None:
            self._delete(place.path)
        else:
            self._listed = self._asker.reply()
            connection.sync(self._path, self._asker.reply().address)  # a server that lags behind must not hide it
            connection.children(self._path, self._listed.address)

    async def look(self, until: float) -> None:
        """Remove what an attempt without an answer may have left."""
        if self._listed is None:
            return
        try:
            children: Sequence[str] = await self._arrived(self._listed, until)
        except NoNodeError:
            children = ()
        except (RequestFailed, EngineRefused) as failure:
            self._fail(failure)
            return
        own = order.find_own(children, id_of(self._attempt))
        for node in own:
            self._delete(f"{self._path}/{node}")
        if not own:
            self._end(Found.GONE)

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
        deleted = self._asker.reply()
        self._deleted.append(deleted)
        self._connection.delete(path, deleted.address)

    async def _arrived(self, reply: Reply, until: float) -> Any:
        assert self._connection is not None
        return await self._asker.answer(self._connection, reply, max(0.0, until - self._asker.runtime.now()))

    def _end(self, found: Found) -> None:
        self._asker.hub.forget(self._attempt)
        self._answer = found

    def _fail(self, failure: RequestFailed | EngineRefused) -> None:
        self._asker.hub.forget(self._attempt)
        self._answer = failure
        if self._connection is not None and isinstance(failure, RequestFailed):
            self._asker.hub.leftovers.add(self._connection, self._path, id_of(self._attempt))
