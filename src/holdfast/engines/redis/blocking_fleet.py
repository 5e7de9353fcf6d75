"""Several servers asked at once from one thread: write to all, then read from all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from holdfast._runtime.base import Wakeup
from holdfast.engines.base import RequestFailed, Suspects
from holdfast.engines.redis import guard
from holdfast.engines.redis.blocking import BlockingChannel, GuardedFlight
from holdfast.engines.redis.channel import Answer
from holdfast.engines.redis.requests import Call
from holdfast.engines.redis.wire import Wire
from holdfast.errors import EngineRefused

Failure = RequestFailed | EngineRefused
#: How much longer than its time-out a connecting thread may take to say so.
_GRACE: Final = 0.05


class BlockingFleet:
    """See :class:`holdfast.engines.redis.fleet.Fleet`. Has no state."""

    async def ask(self, channels: Sequence[BlockingChannel], call: Call, timeout: float) -> list[Answer]:
        unconnected = [channel for channel in channels if not channel.idle]
        failures = _connect({channel: channel.warm for channel in unconnected}, timeout) if unconnected else {}
        packed = call.packed
        sent = list[tuple[BlockingChannel, Wire | Failure]]()
        try:
            for channel in channels:
                try:
                    sent.append((channel, failures.get(channel) or channel.start(packed, timeout)))
                except (RequestFailed, EngineRefused) as failure:
                    sent.append((channel, failure))
            deadline = time.monotonic() + timeout
            return [
                channel.finish(wire, call, deadline) if isinstance(wire, Wire) else wire  # or the failure
                for channel, wire in sent
            ]
        except BaseException:  # Ctrl-C: no reply may be taken for that of another request
            for channel, wire in sent:
                if isinstance(wire, Wire):
                    channel.discard(wire)
            raise

    async def ask_each(
        self, requests: Sequence[tuple[BlockingChannel, Sequence[Call]]], replicas: int, timeout: float
    ) -> list[Sequence[Answer]]:
        unconnected = [channel for channel, _ in requests if channel.guard.fileno() is None]
        failures = _connect({channel: channel.guard.warm for channel in unconnected}, timeout) if unconnected else {}
        flights = list[tuple[BlockingChannel, GuardedFlight]]()
        answers = list[Sequence[Answer]]()
        try:
            for channel, calls in requests:
                failure = failures.get(channel)
                flight = GuardedFlight(calls, replicas, None, failure) if failure else None
                flights.append((channel, flight or channel.begin_guarded(calls, replicas, timeout)))
            deadline = time.monotonic() + timeout
            for channel, flight in flights:
                answers.append(await channel.end_guarded(flight, deadline))
            return answers
        except BaseException:
            for channel, flight in flights[len(answers) :]:
                channel.give_up_guarded(flight)
            raise

    async def doze(self, channels: Sequence[BlockingChannel], until: float, wakeup: Wakeup) -> Suspects:
        return await guard.doze([channel.guard for channel in channels], until, wakeup)


class _Connecting(threading.Thread):
    def __init__(self, connect: Callable[[float], None], timeout: float) -> None:
        super().__init__(name="holdfast-connect", daemon=True)
        self._connect = connect
        self._timeout = timeout
        self.failure: Failure | None = RequestFailed("not connected in time", may_have_happened=False)

    def run(self) -> None:
        try:
            self._connect(self._timeout)
        except (RequestFailed, EngineRefused) as failure:
            self.failure = failure
        else:
            self.failure = None


def _connect(missing: dict[BlockingChannel, Callable[[float], None]], timeout: float) -> dict[BlockingChannel, Failure]:
    """Have a connection ready on each; those that have none then, and why.

    redis-py connects one at a time, and a server that is out of reach takes the whole ``timeout``: one after the other,
    two of them would use up the lease that is being asked for. So for this moment each has a thread. A connection that
    comes too late is there for the next request.
    """
    threads = {channel: _Connecting(connect, timeout) for channel, connect in missing.items()}
    deadline = time.monotonic() + timeout + _GRACE
    if len(threads) == 1:
        next(iter(threads.values())).run()  # alone, it delays nobody
    else:
        for thread in threads.values():
            thread.start()
        for thread in threads.values():
            thread.join(max(0.0, deadline - time.monotonic()))
    return {channel: thread.failure for channel, thread in threads.items() if thread.failure is not None}
