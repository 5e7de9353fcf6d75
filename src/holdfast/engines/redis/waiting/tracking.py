"""The watchdog's connection: it tracks every lock that it has renewed or looked at, so losses are pushed to it."""

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
from holdfast.engines.redis.dialect.replies import Answer
from holdfast.engines.redis.dialect.requests import Call, explained, is_demotion
from holdfast.errors import EngineRefused

if TYPE_CHECKING:
    from holdfast.engines.redis.connections.blocking import BlockingChannel

#: NOLOOP: our own renewals are no news. OPTOUT: a lock is tracked by the one command that looks at it. Scripts are
#: excepted by CACHING NO, which is tried here: refused by an ACL, renewing 200 locks would track 200 times 600 keys. It
#: counts for the next command, which is TIME.
_TRACK: Final = (("CLIENT", "TRACKING", "ON", "OPTOUT", "NOLOOP"), ("CLIENT", "CACHING", "NO"), ("TIME",))
_DO_NOT_TRACK: Final = (("CLIENT", "TRACKING", "OFF"),)
_AT_ONCE: Final = float("-inf")


class Guard:
    """Used by one thread at a time: between ``enter`` and ``leave``, or in ``wait_for_hints`` below."""

    def __init__(self, channel: BlockingChannel) -> None:
        self._channel = channel
        self._mutex = threading.Lock()
        self._wire: Wire | None = None
        self._keys: set[str] = set()
        self._all = False
        self._forgetful = False  # a connection was lost with all that it tracked, and nobody was told
        #: The watchdog sleeps here. Else nothing would ever take what is pushed, and it would pile up.
        self.listening = False

    def enter(self) -> bool:
        return self._mutex.acquire(blocking=False)

    def leave(self) -> None:
        self._mutex.release()
        if self._channel.closed:
            self.close()  # whoever closed the channel found us here

    def warm(self, timeout: float) -> None:
        """Have the connection ready, unless somebody else is at it."""
        if self.enter():
            try:
                if self._wire is None:
                    self._wire = self._open(timeout)
            finally:
                self.leave()

    def begin(self, calls: Sequence[Call], replicas: int, timeout: float) -> in_flight.Flight:
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

    def end(self, sent: in_flight.Flight, deadline: float) -> list[Answer]:
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
        """What becomes readable when there is news; None: no connection."""
        return None if self._wire is None else self._wire.fileno()

    def news(self) -> Suspects:
        """What was pushed by now. Does not wait."""
        wire = self._wire
        if wire is not None:
            try:
                while wire.listen(0.0):
                    pass
            except RequestFailed:
                self.drop(wire)
                self._forgetful, self._all = False, True
        suspects: Suspects = ALL_NAMES if self._all else frozenset(self._keys)
        self._all, self._keys = False, set()
        return suspects

    def close(self) -> None:
        """Close the connection, unless somebody is at it: then he does, when he leaves. (Closed under him, its number
        might be another file's by the time that he writes.)"""
        if self.enter():
            wire, self._wire = self._wire, None
            if wire is not None:
                wire.close()
            self._mutex.release()

    def give_up(self) -> None:
        """Leave in a hurry, perhaps after a request was sent: its replies must never be read."""
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
        if self._forgetful:
            # What the last connection tracked is not tracked by this one until it is renewed again. Told only now: told
            # while the server is away, it would send the watchdog round in circles.
            self._forgetful, self._all = False, True
        return wire

    def _track(self, wire: Wire, deadline: float) -> bool:
        """Have ``wire`` track what it reads. Refused: then losses are found by the renewals alone."""
        answers = [explained(reply) for reply in wire.ask(_TRACK, max(deadline - time.monotonic(), 0.001))]
        for answer in answers:
            if isinstance(answer, RequestFailed):
                raise answer  # for the moment (BUSY): taken for a refusal, it would be one for as long as this lasts
        refused = any(isinstance(answer, EngineRefused) for answer in answers[:2])
        if refused:
            wire.ask(_DO_NOT_TRACK, max(deadline - time.monotonic(), 0.001))
        return not refused

    def _on_push(self, push: PushNotification) -> None:
        words = pushes.words(push)
        if words is None:
            self._all = True
        else:
            self._keys.update(word.decode("utf-8", "replace") for word in words)

    def drop(self, wire: Wire) -> None:
        self._wire = None
        self._forgetful = True
        self._channel.discard(wire)


async def wait_for_hints(guards: Sequence[Guard], until: float, wakeup: Wakeup) -> Suspects:
    """Sleep until ``until``, the wake-up, or news of one of the guards. See ``KeeperChannel.wait_for_hints``."""
    assert isinstance(wakeup, BlockingWakeup), "the watchdog runs on the blocking runtime"
    for guard in guards:
        guard.listening = True
    while True:
        suspects: set[str] = set()
        for guard in guards:
            news = guard.news()
            if news == ALL_NAMES:
                return ALL_NAMES
            suspects.update(news)
        if suspects:
            return suspects
        filenos = [fileno for guard in guards if (fileno := guard.fileno()) is not None]
        if not await BLOCKING.readable((wakeup.fileno(), *filenos), until) or await wakeup.wait(_AT_ONCE):
            return ()
