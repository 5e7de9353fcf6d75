"""The watchdog's ear: a connection that tracks every lock it has renewed, and hears at once when one is taken."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hiredis import PushNotification, ReplyError

from holdfast._runtime.base import Wakeup
from holdfast._runtime.blocking import BLOCKING, BlockingWakeup
from holdfast.engines.base import ALL_NAMES, RequestFailed, Suspects
from holdfast.engines.redis import pushes
from holdfast.engines.redis.channel import Answer
from holdfast.engines.redis.packing import pack
from holdfast.engines.redis.requests import (
    Call,
    checked,
    explained,
    is_demotion,
    is_unknown_script,
    unacknowledged,
    wait_for_replicas,
)
from holdfast.engines.redis.wire import Wire

if TYPE_CHECKING:
    from holdfast.engines.redis.blocking import BlockingChannel

#: NOLOOP: our own renewals are no news. OPTIN: were every read tracked, each one inside a script would track all KEYS
#: of that script anew, and renewing 200 locks would cost the server 200 times 600 keys.
_TRACK: Final = pack(("CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP"))
_CACHE: Final = pack(("CLIENT", "CACHING", "YES"))
_AT_ONCE: Final = float("-inf")


class Flight(NamedTuple):
    """Scripts that were sent, whose answers are still to be read."""

    wire: Wire
    calls: Sequence[Call]
    replicas: int


class Guard:
    """Used by one thread at a time: between ``enter`` and ``leave``, or in ``doze`` below."""

    def __init__(self, channel: BlockingChannel) -> None:
        self._channel = channel
        self._mutex = threading.Lock()
        self._wire: Wire | None = None
        self._keys: set[str] = set()
        self._all = False
        self._forgetful = False  # a connection was lost with all that it tracked, and nobody was told

    def enter(self) -> bool:
        return self._mutex.acquire(blocking=False)

    def leave(self) -> None:
        self._mutex.release()

    def warm(self, timeout: float) -> None:
        """Have the connection ready, unless somebody else is at it."""
        if self.enter():
            try:
                if self._wire is None:
                    self._wire = self._open(timeout)
            finally:
                self.leave()
            if self._channel.closed:  # meanwhile: whoever closed it has not seen this one
                self.close()

    def begin(self, calls: Sequence[Call], replicas: int, timeout: float) -> Flight:
        """Send scripts on the tracking connection, which is opened if there is none; each is followed by the tracking
        of its keys, and all of them by the question how many replicas have acknowledged.

        Tracking last, because a write would end it; one command for all keys of a call, and nothing between it and
        CACHING.
        """
        wire = self._wire
        if wire is not None and not self._channel.leads_there(wire):
            self.drop(wire)
            wire = None
        if wire is None:
            wire = self._wire = self._open(timeout)
        return self._send(wire, [(call, call.packed) for call in calls], replicas, timeout)

    def end(self, flight: Flight, deadline: float) -> list[Answer]:
        """The answers to what ``begin`` sent. A script that the server did not know is sent once more."""
        try:
            answers = self._receive(flight, deadline)
            unknown = [at for at, answer in enumerate(answers) if is_unknown_script(answer)]
            if unknown:
                calls = [(flight.calls[at], flight.calls[at].by_source()) for at in unknown]
                again = self._send(flight.wire, calls, flight.replicas, max(deadline - time.monotonic(), 0.001))
                for at, answer in zip(unknown, self._receive(again, deadline), strict=True):
                    answers[at] = answer
        except BaseException:
            self.drop(flight.wire)
            raise
        if any(is_demotion(answer) for answer in answers):
            self.drop(flight.wire)
        return [explained(answer) for answer in answers]

    def _send(self, wire: Wire, calls: Sequence[tuple[Call, bytes]], replicas: int, timeout: float) -> Flight:
        parts = []
        for call, packed in calls:
            parts += [packed, _CACHE, pack(("EXISTS", *call.watched))] if wire.tracking and call.watched else [packed]
        if replicas:
            parts.append(wait_for_replicas(replicas, timeout))
        try:
            wire.send(b"".join(parts), timeout)
        except BaseException:
            self.drop(wire)
            raise
        return Flight(wire, [call for call, _ in calls], replicas)

    def _receive(self, flight: Flight, deadline: float) -> list[Any]:
        wire, answers = flight.wire, []
        for call in flight.calls:
            answers.append(wire.late_reply(deadline))
            if wire.tracking and call.watched:
                wire.late_reply(deadline)
                wire.late_reply(deadline)
        if flight.replicas:
            acknowledged = checked(wire.late_reply(deadline))
            if acknowledged < flight.replicas:
                failure = unacknowledged(acknowledged, flight.replicas)
                return [answer if answer.__class__ is ReplyError else failure for answer in answers]
        return answers

    def fileno(self) -> int | None:
        """What becomes readable when there is news; None: no connection."""
        return None if self._wire is None else self._wire.fileno()

    def news(self) -> Suspects:
        """What was pushed by now. Does not wait."""
        wire = self._wire
        while wire is not None and wire.readable(0.0):
            try:
                wire.listen(0.0)
            except RequestFailed:
                self.drop(wire)
                self._forgetful, self._all, wire = False, True, None
        suspects: Suspects = ALL_NAMES if self._all else frozenset(self._keys)
        self._all, self._keys = False, set()
        return suspects

    def close(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    def _open(self, timeout: float) -> Wire:
        wire = self._channel.connect(timeout)
        try:
            # Refused: then losses are found by the renewals alone.
            wire.tracking = wire.call(_TRACK, timeout).__class__ is not ReplyError
        except BaseException:
            wire.abort()
            raise
        wire.on_push = self._on_push
        if self._forgetful:
            # What the last connection tracked is not tracked by this one until it is renewed again. Told only now: told
            # while the server is away, it would send the watchdog round in circles.
            self._forgetful, self._all = False, True
        return wire

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


async def doze(guards: Sequence[Guard], until: float, wakeup: Wakeup) -> Suspects:
    """Sleep until ``until``, the bell, or news of one of the guards. See ``Channel.doze``."""
    assert isinstance(wakeup, BlockingWakeup), "the watchdog runs on the blocking runtime"
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
