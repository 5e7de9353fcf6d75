"""The watchdog's tracking connection: it tracks every lock that it has renewed or looked at, so that the server pushes
their losses to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from hiredis import PushNotification

from holdfast._runtime.base import Wakeup
from holdfast._runtime.blocking import BLOCKING, BlockingWakeup
from holdfast.engines.base import ALL_NAMES, RequestFailed, Suspects
from holdfast.engines.redis.connections import in_flight
from holdfast.engines.redis.connections.wire import Wire
from holdfast.engines.redis.dialect import pushes
from holdfast.engines.redis.dialect.replies import Answer, explained, is_demotion
from holdfast.engines.redis.dialect.requests import Call
from holdfast.errors import EngineRefused

if TYPE_CHECKING:
    from holdfast.engines.redis.connections.blocking import BlockingChannel

#: NOLOOP: the watchdog's own renewals are no hints. OPTOUT: a lock is tracked by the one command that looks at it.
#: Scripts are excepted by CACHING NO, which is tried here: where an ACL refuses it, renewing 200 locks would track 600
#: keys 200 times. It counts for the next command, which is TIME.
_TRACK: Final = (("CLIENT", "TRACKING", "ON", "OPTOUT", "NOLOOP"), ("CLIENT", "CACHING", "NO"), ("TIME",))
_DO_NOT_TRACK: Final = (("CLIENT", "TRACKING", "OFF"),)
#: A deadline in the past: look, but do not wait.
_NOW: Final = float("-inf")


class TrackingConnection:
    """Used by one thread at a time: between ``enter`` and ``leave``, or in ``wait_for_hints`` below."""

    def __init__(self, channel: BlockingChannel) -> None:
        self._channel = channel
        self._mutex = threading.Lock()
        self._wire: Wire | None = None
        self._keys: set[str] = set()
        self._all = False
        self._lost_track = False  # a connection was lost with all that it tracked, and this was not reported yet
        #: The watchdog waits for hints here. Otherwise pushes would never be read, and would accumulate.
        self.listening = False

    def enter(self) -> bool:
        return self._mutex.acquire(blocking=False)

    def leave(self) -> None:
        self._mutex.release()
        if self._channel.closed:
            self.close()  # the thread that closed the channel found this one in use

    def warm(self, timeout: float) -> None:
        """Opens the connection, unless another thread uses it."""
        if self.enter():
            try:
                if self._wire is None:
                    self._wire = self._open(timeout)
            finally:
                self.leave()

    def begin(self, calls: Sequence[Call], replicas: int, timeout: float) -> in_flight.InFlight:
        """Send calls on the tracking connection, which is opened if there is none."""
        wire = self._wire
        if wire is not None and (wire.owed or not self._channel.leads_there(wire)):
            self.drop(wire)
            wire = None
        if wire is None:
            wire = self._wire = self._open(timeout)
        try:
            return in_flight.send(wire, calls, replicas, timeout, tracked=wire.tracking)
        except BaseException:
            self.drop(wire)
            raise

    def end(self, sent: in_flight.InFlight, deadline: float) -> list[Answer]:
        """The answers to what ``begin`` sent."""
        try:
            answers = in_flight.receive(sent, deadline)
        except BaseException:
            self.drop(sent.wire)
            raise
        if any(is_demotion(answer) for answer in answers):
            self.drop(sent.wire)
        return [explained(answer) for answer in answers]

    def fileno(self) -> int | None:
        """What becomes readable when there are hints; None: no connection."""
        return None if self._wire is None else self._wire.fileno()

    def hints(self) -> Suspects:
        """What was pushed by now. Does not wait."""
        wire = self._wire
        if wire is not None:
            try:
                while wire.listen(0.0):
                    pass
            except RequestFailed:
                self.drop(wire)
                self._lost_track, self._all = False, True
        suspects: Suspects = ALL_NAMES if self._all else frozenset(self._keys)
        self._all, self._keys = False, set()
        return suspects

    def close(self) -> None:
        """Close the connection, unless another thread uses it: then that thread does, when it leaves. (Closed during
        its use, its descriptor's number might be another file's by the time of the next write.)"""
        if self.enter():
            wire, self._wire = self._wire, None
            if wire is not None:
                wire.close()
            self._mutex.release()

    def give_up(self) -> None:
        """Leave after an interrupt, perhaps after a request was sent: its replies must never be read."""
        if self._wire is not None:
            self.drop(self._wire)
        self.leave()

    def _open(self, timeout: float) -> Wire:
        deadline = time.monotonic() + timeout
        wire = self._channel.connect(timeout)
        try:
            wire.tracking = self._track(wire, deadline)
        except BaseException:
            wire.abort()
            raise
        wire.on_push = self._on_push
        if self._lost_track:
            # What the last connection tracked is not tracked by this one until it is renewed again. Reported only now:
            # reported while the server is unreachable, it would make the watchdog retry without a pause.
            self._lost_track, self._all = False, True
        return wire

    def _track(self, wire: Wire, deadline: float) -> bool:
        """Have ``wire`` track what it reads. If that is refused, losses are found by the renewals alone."""
        answers = [explained(reply) for reply in wire.ask(_TRACK, max(deadline - time.monotonic(), 0.001))]
        for answer in answers:
            if isinstance(answer, RequestFailed):
                # A passing state of the server (BUSY). Taken for a refusal, it would last as long as this connection.
                raise answer
        refused = any(isinstance(answer, EngineRefused) for answer in answers[:2])
        if refused:
            wire.ask(_DO_NOT_TRACK, max(deadline - time.monotonic(), 0.001))
        return not refused

    def _on_push(self, push: PushNotification) -> None:
        subjects = pushes.subjects(push)
        if subjects is None:
            self._all = True
        else:
            self._keys.update(subject.decode("utf-8", "replace") for subject in subjects)

    def drop(self, wire: Wire) -> None:
        self._wire = None
        self._lost_track = True
        self._channel.discard(wire)


async def wait_for_hints(connections: Sequence[TrackingConnection], until: float, wakeup: Wakeup) -> Suspects:
    """Sleep until ``until``, ``wakeup``, or a hint on one of the connections. See ``KeeperChannel.wait_for_hints``."""
    assert isinstance(wakeup, BlockingWakeup), "the watchdog runs on the blocking runtime"
    for connection in connections:
        connection.listening = True
    while True:
        suspects: set[str] = set()
        for connection in connections:
            hints = connection.hints()
            if hints == ALL_NAMES:
                return ALL_NAMES
            suspects.update(hints)
        if suspects:
            return suspects
        filenos = [fileno for connection in connections if (fileno := connection.fileno()) is not None]
        if not await BLOCKING.readable((wakeup.fileno(), *filenos), until) or await wakeup.wait(_NOW):
            return ()
