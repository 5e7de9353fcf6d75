"""Several servers asked at once from one thread: write to all, then read from all."""

from __future__ import annotations

import _thread
import queue
import time
from collections import deque
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
        sent = deque[tuple[BlockingChannel, Wire | Failure]]()
        answers = list[Answer]()
        try:
            for channel in channels:
                try:
                    sent.append((channel, failures.get(channel) or channel.start(packed, timeout)))
                except (RequestFailed, EngineRefused) as failure:
                    sent.append((channel, failure))
            deadline = time.monotonic() + timeout
            while sent:
                # Taken out first: finished, a connection is back in the pool, and perhaps in another thread's hands.
                channel, wire = sent.popleft()
                answers.append(channel.finish(wire, call, deadline) if isinstance(wire, Wire) else wire)
            return answers
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
        flights = deque[tuple[BlockingChannel, GuardedFlight]]()
        answers = list[Sequence[Answer]]()
        try:
            for channel, calls in requests:
                failure = failures.get(channel)
                flight = GuardedFlight(calls, replicas, None, failure) if failure else None
                flights.append((channel, flight or channel.begin_guarded(calls, replicas, timeout)))
            deadline = time.monotonic() + timeout
            while flights:
                channel, flight = flights.popleft()  # ended by end_guarded, whatever happens in it
                answers.append(await channel.end_guarded(flight, deadline))
            return answers
        except BaseException:
            for channel, flight in flights:
                channel.give_up_guarded(flight)
            raise

    async def doze(self, channels: Sequence[BlockingChannel], until: float, wakeup: Wakeup) -> Suspects:
        return await guard.doze([channel.guard for channel in channels], until, wakeup)


def _connect(missing: dict[BlockingChannel, Callable[[float], None]], timeout: float) -> dict[BlockingChannel, Failure]:
    """Have a connection ready on each; those that have none then, and why.

    redis-py connects one at a time, and a server that is out of reach takes the whole ``timeout``: one after the other,
    two of them would use up the lease that is being asked for. So for this moment each has a thread. A connection that
    comes too late is there for the next request.

    Bare threads: to start a threading.Thread is to wait for it in Python code, which a Ctrl-C can leave half-done.
    """
    late = RequestFailed("not connected in time", may_have_happened=False)
    failures: dict[BlockingChannel, Failure] = dict.fromkeys(missing, late)
    outcomes: queue.SimpleQueue[tuple[BlockingChannel, Failure | None]] = queue.SimpleQueue()
    deadline = time.monotonic() + timeout + _GRACE
    for channel, connect in missing.items():
        attempt = (channel, connect, timeout, outcomes)
        if len(missing) == 1:
            _try(*attempt)  # alone, it delays nobody
            break
        try:
            _thread.start_new_thread(_try, attempt)
        except RuntimeError:  # the interpreter is ending, or the system has no more threads
            _try(*attempt)
    for _ in missing:
        try:
            channel, failure = outcomes.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        if failure is None:
            del failures[channel]
        else:
            failures[channel] = failure
    return failures


def _try(
    channel: BlockingChannel,
    connect: Callable[[float], None],
    timeout: float,
    outcomes: queue.SimpleQueue[tuple[BlockingChannel, Failure | None]],
) -> None:
    failure: Failure | None = None
    try:
        connect(timeout)
    except (RequestFailed, EngineRefused) as error:
        failure = error
    outcomes.put((channel, failure))
