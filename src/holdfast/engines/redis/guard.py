"""The watchdog's ear: a connection that tracks every lock it has renewed, and hears at once when one is taken."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from hiredis import PushNotification, ReplyError

from holdfast._runtime.base import Wakeup
from holdfast._runtime.blocking import BLOCKING, BlockingWakeup
from holdfast.engines.base import ALL_NAMES, RequestFailed, Suspects
from holdfast.engines.redis import pushes
from holdfast.engines.redis.packing import pack
from holdfast.engines.redis.wire import Wire

if TYPE_CHECKING:
    from holdfast.engines.redis.blocking import BlockingChannel

#: NOLOOP: our own renewals are no news. OPTIN: were every read tracked, each one inside a script would track all KEYS
#: of that script anew, and renewing 200 locks would cost the server 200 times 600 keys.
_TRACK: Final = pack(("CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP"))
_CACHE: Final = pack(("CLIENT", "CACHING", "YES"))


class Guard:
    """Used by one thread at a time: between ``enter`` and ``leave``, or in ``doze``."""

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

    def call(self, packed: bytes, watched: Sequence[str], timeout: float) -> Any:
        """Send one request on the tracking connection, which is opened if there is none; then track ``watched``.

        Last, because a write would end the tracking; one command for all keys, and nothing between it and CACHING.
        """
        wire = self._wire
        if wire is None:
            wire = self._wire = self._open(timeout)
        try:
            if not wire.tracking:
                return wire.call(packed, timeout)
            deadline = time.monotonic() + timeout
            wire.send(b"".join((packed, _CACHE, pack(("EXISTS", *watched)))), timeout)
            reply, _, _ = (wire.reply(deadline) for _ in range(3))
            return reply
        except BaseException:
            self._drop(wire)
            self._forgetful = True
            raise

    async def doze(self, until: float, wakeup: Wakeup) -> Suspects:
        """See :meth:`holdfast.engines.redis.channel.Channel.doze`."""
        assert isinstance(wakeup, BlockingWakeup), "the watchdog runs on the blocking runtime"
        while not (self._all or self._keys):
            wire = self._wire
            if wire is None:
                await wakeup.wait(until)
                break
            if not wire.readable(0.0):
                if not await BLOCKING.readable((wakeup.fileno(), wire.fileno()), until):
                    break
                if not wire.readable(0.0):
                    break  # the bell
            try:
                wire.listen(0.0)
            except RequestFailed:
                self._drop(wire)
                self._all = True
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

    def _drop(self, wire: Wire) -> None:
        self._wire = None
        self._channel.discard(wire)
