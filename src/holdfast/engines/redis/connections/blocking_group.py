"""Several servers asked at once from one thread: write to all, then read from all."""

from __future__ import annotations

import _thread
import queue
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from holdfast._runtime.base import Wakeup
from holdfast.engines.base import RequestFailed, Suspects
from holdfast.engines.redis.connections.blocking import BlockingChannel, GuardedFlight
from holdfast.engines.redis.connections.wire import Wire
from holdfast.engines.redis.dialect.replies import Answer
from holdfast.engines.redis.dialect.requests import Call
from holdfast.engines.redis.waiting import tracking
from holdfast.errors import EngineRefused, UsageError

Failure = RequestFailed | EngineRefused
Attempt = Callable[[float], None]
#: A mistake in the settings is told to the caller, not to the thread that met it.
Outcome = tuple[BlockingChannel, Failure | UsageError | None]
#: How much longer than its time-out a connecting thread may take to say so.
_GRACE: Final = 0.05
#: Attempts to connect to one server that may be under way at once. What takes far longer than its time-out is to ask
#: for the address of a host while the name servers are silent; unbounded, each request would leave one thread more.
_MOST_ATTEMPTS: Final = 16


class BlockingFleet:
    """See :class:`holdfast.engines.redis.connections.group.Fleet`."""

    def __init__(self) -> None:
        self._attempts: list[BlockingChannel] = []  # to connect, under way; append and remove are atomic
        self._listening = False  # the watchdog sleeps here: servers that are met later are listened to as well

    async def ask(self, channels: Sequence[BlockingChannel], call: Call, timeout: float) -> list[Answer]:
        packed = call.packed
        wires: list[Wire | Failure | None] = []
        answers: list[Answer] = []
        try:
            wires += [channel.take_idle() for channel in channels]
            if None in wires:
                self._complete(channels, wires, timeout)
            for at, wire in enumerate(wires):
                if isinstance(wire, Wire):
                    try:
                        wire.send(packed, timeout)
                    except RequestFailed as failure:
                        wires[at] = failure
                        channels[at].discard(wire)
            deadline = time.monotonic() + timeout
            for at, channel in enumerate(channels):
                # Taken out first: finished, a connection is back in the pool, and perhaps in another thread's hands.
                wire, wires[at] = wires[at], None
                answers.append(channel.finish(wire, call, deadline) if isinstance(wire, Wire) else wire)
            return answers
        except BaseException:  # Ctrl-C: no reply may be taken for that of another request
            for channel, wire in zip(channels, wires, strict=False):
                if isinstance(wire, Wire):
                    channel.discard(wire)
            raise

    def _complete(
        self, channels: Sequence[BlockingChannel], wires: list[Wire | Failure | None], timeout: float
    ) -> None:
        """Put a connection, or why there is none, in place of each None."""
        missing = {channel: at for at, channel in enumerate(channels) if wires[at] is None}
        failures = self._connect({channel: channel.warm for channel in missing}, timeout)
        for channel, at in missing.items():
            try:
                # Not there any more, if another thread was faster: but then it is quickly made anew.
                wires[at] = failures.get(channel) or channel.take(timeout)
            except (RequestFailed, EngineRefused) as failure:
                wires[at] = failure

    async def ask_each(
        self, requests: Sequence[tuple[BlockingChannel, Sequence[Call]]], replicas: int, timeout: float
    ) -> list[Sequence[Answer]]:
        until = time.monotonic() + timeout
        missing = dict[BlockingChannel, Attempt]()
        for channel, _ in requests:
            channel.guard.listening |= self._listening
            if attempt := channel.to_be_connected():
                missing[channel] = attempt
        failures = self._connect(missing, timeout) if missing else {}
        flights = deque[tuple[BlockingChannel, GuardedFlight]]()
        answers = list[Sequence[Answer]]()
        try:
            for channel, calls in requests:
                failure = failures.get(channel)
                flight = GuardedFlight(calls, replicas, None, False, failure, until) if failure else None
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

    async def wait_for_hints(self, channels: Sequence[BlockingChannel], until: float, wakeup: Wakeup) -> Suspects:
        self._listening = True
        return await tracking.wait_for_hints([channel.guard for channel in channels], until, wakeup)

    # -- connecting ------------------------------------------------------------------------------------------------

    def _connect(self, missing: Mapping[BlockingChannel, Attempt], timeout: float) -> dict[BlockingChannel, Failure]:
        """Have a connection ready on each; those that have none then, and why.

        redis-py connects one at a time, and a server that is out of reach takes the whole ``timeout``: one after the
        other, two of them would use up the lease that is being asked for. How long it takes to find the address of a
        host is up to the system, and one alone could keep the watchdog from all that it has to renew. So for this
        moment each has a thread. A connection that comes too late is there for the next request.

        Bare threads: to start a threading.Thread is to wait for it in Python code, which a Ctrl-C can leave half-done.
        """
        late = RequestFailed("not connected in time", may_have_happened=False)
        failures: dict[BlockingChannel, Failure] = dict.fromkeys(missing, late)
        outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        deadline = time.monotonic() + timeout + _GRACE
        for channel, attempt in missing.items():
            if self._attempts.count(channel) >= _MOST_ATTEMPTS:
                outcomes.put((channel, late))
                continue
            try:
                _thread.start_new_thread(self._try, (channel, attempt, timeout, outcomes))
            except RuntimeError:  # the interpreter is ending, or the system has no more threads
                self._try(channel, attempt, timeout, outcomes)
        for _ in missing:
            try:
                channel, failure = outcomes.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
            if isinstance(failure, UsageError):
                raise failure
            if failure is None:
                del failures[channel]
            else:
                failures[channel] = failure
        return failures

    def _try(
        self,
        channel: BlockingChannel,
        attempt: Attempt,
        timeout: float,
        outcomes: queue.SimpleQueue[Outcome],
    ) -> None:
        failure: Failure | UsageError | None = None
        self._attempts.append(channel)
        try:
            attempt(timeout)
        except (RequestFailed, EngineRefused, UsageError) as error:
            failure = error
        finally:
            self._attempts.remove(channel)
        outcomes.put((channel, failure))
