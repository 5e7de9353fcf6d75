"""Several servers asked in parallel from one thread: write to all, then read from all."""

from __future__ import annotations

import _thread
import queue
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from holdfast._runtime.base import Wakeup
from holdfast.engines.base import RequestFailed, Suspects
from holdfast.engines.redis.connections.blocking import BlockingChannel
from holdfast.engines.redis.connections.blocking_keeper import BlockingKeeperChannel, TrackedBatch
from holdfast.engines.redis.connections.wire import NOTHING, Wire
from holdfast.engines.redis.dialect.replies import Answer
from holdfast.engines.redis.dialect.requests import Call
from holdfast.engines.redis.waiting import tracking
from holdfast.errors import EngineRefused, UsageError

B = TypeVar("B", bound=BlockingChannel)

Failure = RequestFailed | EngineRefused
Connect = Callable[[float], None]
#: A mistake in the settings is raised in the caller, not in the thread that met it.
Outcome = tuple[B, Failure | UsageError | None]
#: How much longer than its timeout a connecting thread may take to report its outcome (s).
_GRACE: Final = 0.05
#: Attempts to connect to one server that may run at the same time. A name lookup takes far longer than its timeout
#: while the name servers do not answer; unbounded, each request would leave one more thread behind.
_MOST_ATTEMPTS: Final = 16


class BlockingGroup:
    """See :class:`~holdfast.engines.redis.connections.group.ServerGroup`."""

    def __init__(self) -> None:
        self._attempts: list[BlockingChannel] = []  # to connect, in progress; append and remove are atomic

    async def ask(self, channels: Sequence[BlockingChannel], call: Call, timeout: float) -> list[Answer]:
        packed = call.packed
        wires: list[Wire | Failure | None] = []
        waited = False
        answers: list[Answer] = [None] * len(channels)
        try:
            now = time.monotonic()
            wires += [channel.take_idle(now) for channel in channels]
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
            # The last one first: it was asked last. While this thread waits for its answer, the others arrive, and one
            # wait is enough for all of them.
            for at in range(len(channels) - 1, -1, -1):
                # Taken out first: once finished, a connection is back in the pool, and another thread may use it.
                wire, wires[at] = wires[at], None
                if isinstance(wire, Wire):
                    reply = wire.arrived_reply() if waited else NOTHING
                    waited = True
                    answers[at] = channels[at].finish(wire, call, deadline, reply)
                else:
                    answers[at] = wire
            return answers
        except BaseException:  # Ctrl-C: no reply may be taken for that of another request
            for channel, wire in zip(channels, wires, strict=False):
                if isinstance(wire, Wire):
                    channel.discard(wire)
            raise

    def _complete(
        self, channels: Sequence[BlockingChannel], wires: list[Wire | Failure | None], timeout: float
    ) -> None:
        """Put a connection, or the reason why there is none, in place of each None."""
        missing = {channel: at for at, channel in enumerate(channels) if wires[at] is None}
        failures = self._connect({channel: channel.warm for channel in missing}, timeout)
        for channel, at in missing.items():
            try:
                # Another thread may have taken the new connection: then another one is made quickly.
                wires[at] = failures.get(channel) or channel.take(timeout)
            except (RequestFailed, EngineRefused) as failure:
                wires[at] = failure

    def _connect(self, missing: Mapping[B, Connect], timeout: float) -> dict[B, Failure]:
        """Opens a connection on each channel that has none. Returns the channels without one, and why.

        redis-py connects one at a time, and an unreachable server takes the whole ``timeout``: one after the other, two
        of them would use up the requested lease. A name lookup has no time limit, and a single one could keep the
        watchdog from its renewals. So each attempt has a thread of its own. A connection that comes too late is used
        by the next request.

        Bare threads: starting a threading.Thread waits for it in Python code, which a Ctrl-C can interrupt half-way.
        """
        late = RequestFailed("not connected in time", may_have_happened=False)
        failures: dict[B, Failure] = dict.fromkeys(missing, late)
        outcomes: queue.SimpleQueue[Outcome[B]] = queue.SimpleQueue()
        deadline = time.monotonic() + timeout + _GRACE
        for channel, connect in missing.items():
            if self._attempts.count(channel) >= _MOST_ATTEMPTS:
                outcomes.put((channel, late))
                continue
            try:
                _thread.start_new_thread(self._try, (channel, connect, timeout, outcomes))
            except RuntimeError:  # the interpreter is ending, or the system has no more threads
                self._try(channel, connect, timeout, outcomes)
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

    def _try(self, channel: B, connect: Connect, timeout: float, outcomes: queue.SimpleQueue[Outcome[B]]) -> None:
        failure: Failure | UsageError | None = None
        self._attempts.append(channel)
        try:
            connect(timeout)
        except (RequestFailed, EngineRefused, UsageError) as error:
            failure = error
        finally:
            self._attempts.remove(channel)
        outcomes.put((channel, failure))


class BlockingKeeperGroup(BlockingGroup):
    """See :class:`~holdfast.engines.redis.connections.group.KeeperGroup`."""

    def __init__(self) -> None:
        super().__init__()
        self._listening = False  # the watchdog waits for hints here: also from servers that become known later

    async def ask_each(
        self, requests: Sequence[tuple[BlockingKeeperChannel, Sequence[Call]]], replicas: int, timeout: float
    ) -> list[Sequence[Answer]]:
        until = time.monotonic() + timeout
        missing = dict[BlockingKeeperChannel, Connect]()
        for channel, _ in requests:
            channel.tracking.listening |= self._listening
            if connect := channel.to_be_connected():
                missing[channel] = connect
        failures = self._connect(missing, timeout) if missing else {}
        batches = deque[tuple[BlockingKeeperChannel, TrackedBatch]]()
        answers = list[Sequence[Answer]]()
        try:
            for channel, calls in requests:
                failure = failures.get(channel)
                batch = TrackedBatch(calls, replicas, None, False, failure, until) if failure else None
                batches.append((channel, batch or channel.begin_tracked(calls, replicas, timeout)))
            deadline = time.monotonic() + timeout
            while batches:
                channel, batch = batches.popleft()  # ended by end_tracked, whatever happens in it
                answers.append(await channel.end_tracked(batch, deadline))
            return answers
        except BaseException:
            for channel, batch in batches:
                channel.give_up_tracked(batch)
            raise

    async def wait_for_hints(self, channels: Sequence[BlockingKeeperChannel], until: float, wakeup: Wakeup) -> Suspects:
        self._listening = True
        return await tracking.wait_for_hints([channel.tracking for channel in channels], until, wakeup)
