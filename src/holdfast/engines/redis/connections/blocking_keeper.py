"""The watchdog's blocking channel: batches on its tracking connection, or on one lent by a caller's channel."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol

from holdfast._runtime.base import Wakeup
from holdfast.engines.base import RequestFailed, Suspects
from holdfast.engines.redis.connections import in_flight
from holdfast.engines.redis.connections.blocking import BlockingChannel
from holdfast.engines.redis.connections.settings import Server
from holdfast.engines.redis.dialect.replies import Answer, out_of_time
from holdfast.engines.redis.dialect.requests import Call
from holdfast.engines.redis.waiting import tracking
from holdfast.errors import EngineRefused


class TrackedBatch(NamedTuple):
    """Calls that were sent by the tracking connection or, ``tracked`` being false, by one of the pool; or that failed
    already, because there is no connection. ``until``: when their time is over."""

    calls: Sequence[Call]
    replicas: int
    sent: in_flight.InFlight | None
    tracked: bool
    failure: RequestFailed | EngineRefused | None
    until: float


class Lender(Protocol):
    """A channel of the same engine that may run calls for a watchdog which cannot connect."""

    def lend(self, address: str, calls: Sequence[Call], replicas: int, timeout: float) -> Sequence[Answer] | None:
        """Run ``calls`` at the server at ``address`` on a connection that is open already; None: there is none. Called
        from the watchdog's thread."""


class BlockingKeeperChannel(BlockingChannel):
    """See :class:`~holdfast.engines.redis.connections.channel.KeeperChannel`."""

    def __init__(self, settings: Server, lenders: Collection[Lender] = ()) -> None:
        super().__init__(settings)
        self._lenders = lenders
        self.tracking = tracking.TrackingConnection(self)

    async def run_tracked(self, calls: Sequence[Call], replicas: int, timeout: float) -> Sequence[Answer]:
        return await self._run(calls, in_flight.MOST_SCRIPTS, replicas, timeout, math.inf)

    async def run_together(self, calls: Sequence[Call], timeout: float) -> Sequence[Answer]:
        return await self._run(calls, in_flight.MOST_CALLS, 0, timeout, time.monotonic() + timeout)

    async def _run(
        self, calls: Sequence[Call], most: int, replicas: int, timeout: float, deadline: float
    ) -> Sequence[Answer]:
        """At most ``most`` in one buffer. ``timeout`` bounds each round trip, ``deadline`` all of them together."""
        answers: list[Answer] = []
        for start in range(0, len(calls), most):
            now = time.monotonic()
            left = min(timeout, deadline - now)
            if left <= 0:
                return answers + [out_of_time()] * (len(calls) - start)
            batch = calls[start : start + most]
            answer = await self.end_tracked(self.begin_tracked(batch, replicas, left), now + left)
            answers += answer
            if all(isinstance(each, RequestFailed) for each in answer):
                # The next ones would fail the same way, after another timeout.
                return answers + [answer[-1]] * (len(calls) - len(answers))
        return answers

    async def wait_for_hints(self, until: float, wakeup: Wakeup) -> Suspects:
        return await tracking.wait_for_hints((self.tracking,), until, wakeup)

    async def close(self) -> None:
        await super().close()
        self.tracking.close()

    # -- in two halves, so that several servers can be asked in parallel -------------------------------------------

    def to_be_connected(self) -> Callable[[float], None] | None:
        """What to call, with a timeout, to have a connection ready for ``begin_tracked``; None: there is one."""
        if self.tracking.listening:
            return self.tracking.warm if self.tracking.fileno() is None else None
        return None if self.has_idle else self.warm

    def begin_tracked(self, calls: Sequence[Call], replicas: int, timeout: float) -> TrackedBatch:
        """The first half of ``run_tracked``, all calls in one buffer. Be sure to call ``end_tracked``."""
        until = time.monotonic() + timeout
        # One thread at a time uses the tracking connection: a second one is not the watchdog.
        tracked = self.tracking.listening and self.tracking.enter()
        sent, failure = None, None
        try:
            if tracked:
                sent = self.tracking.begin(calls, replicas, timeout)
            else:
                sent = self.launch(self.take(timeout), calls, replicas, until)
        except (RequestFailed, EngineRefused) as error:
            failure = error
            if tracked:
                self.tracking.leave()
        except BaseException:
            if tracked:
                self.tracking.give_up()
            raise
        return TrackedBatch(calls, replicas, sent, tracked, failure, until)

    async def end_tracked(self, batch: TrackedBatch, deadline: float) -> Sequence[Answer]:
        """The second half: one answer for each call."""
        calls, replicas, sent, tracked, failure, until = batch
        if sent is None:
            answers = self._borrow(calls, replicas, until) if self.tracking.listening else None
            return answers or [failure] * len(calls)
        if not tracked:
            return self.land(sent, deadline)
        try:
            return self.tracking.end(sent, deadline)
        except (RequestFailed, EngineRefused) as error:
            return [error] * len(calls)
        finally:
            self.tracking.leave()

    def give_up_tracked(self, batch: TrackedBatch) -> None:
        """In place of ``end_tracked``: the answers are no longer needed."""
        if batch.sent is None:
            return
        if batch.tracked:
            self.tracking.give_up()
        else:
            self.discard(batch.sent.wire)

    def _borrow(self, calls: Sequence[Call], replicas: int, until: float) -> Sequence[Answer] | None:
        """Have another channel run ``calls``. The server may accept no new connection (maxclients, a changed password)
        and still serve the open ones."""
        try:
            lenders = list(self._lenders)
        except RuntimeError:
            return None  # another thread opens a session at this moment: the next attempt finds it
        for lender in lenders:
            left = until - time.monotonic()
            if left > 0 and lender is not self:
                answers = lender.lend(self._settings.address, calls, replicas, left)
                if answers is not None:
                    return answers
        return None
