"""The ZooKeeper sessions of one client, and its places in line.

Shared by its callers and its watchdog: a node belongs to the session that created it, and is there only while that is
kept alive. A session has one time-out; so locks with a shorter ttl than the client's have another session, one for each
distinct ttl.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from kazoo.exceptions import NoAuthError

from holdfast._core import lease_time
from holdfast._runtime.base import Wakeup
from holdfast._runtime.clock import now
from holdfast.engines.base import Claim, RequestFailed, Suspects
from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.handler import MOMENT
from holdfast.engines.zookeeper.leftovers import Leftovers
from holdfast.engines.zookeeper.place import Place
from holdfast.engines.zookeeper.reply import Address, Then, ignore

#: Less than there are pings.
_WORDS_PER_SESSION: Final = 4

Tell = Callable[[Connection], None]
Connect = Callable[[float, Tell, Tell], Connection]


class Hub:
    """Thread-safe."""

    def __init__(self, connect: Connect, ttl: float, tick: float) -> None:
        self.ttl = ttl
        self._tick = tick
        self.closed = False
        self.leftovers = Leftovers()
        self.bell: Wakeup | None = None  #: the watchdog's
        self._connect = connect
        # Re-entrant: a task that never came to its end (its event loop was closed) gives up its place as garbage, on
        # whatever thread the collector runs; perhaps on one that is in here.
        self._mutex = threading.RLock()
        self._connections: dict[float, Connection] = {}
        self._places: dict[str, Place] = {}  # by the claim's owner
        self._fresh: dict[Place, float] = {}  # held since when, and not watched yet
        self._awaited: set[Address] = set()
        self._suspects: set[str] = set()

    # -- sessions --------------------------------------------------------------------------------------------------

    def connection(self, ttl: float) -> Connection:
        """The one for locks with this ttl. Begins to connect, does not wait."""
        timeout = min(ttl, self.ttl)
        with self._mutex:
            if self.closed:
                raise RequestFailed("the client is closed", may_have_happened=False)
            connection = self._connections.get(timeout)
            if connection is None or connection.over:
                connection = self._connections[timeout] = self._connect(timeout, self._changed, self._attend)
        connection.start()
        self._end_late(connection)
        return connection

    def _end_late(self, connection: Connection) -> None:
        if self.closed:  # while it was being made
            connection.end()

    def existing(self, ttl: float) -> Connection | None:
        """The one for locks with this ttl, if there ever was one."""
        return self._connections.get(min(ttl, self.ttl))

    def drop(self, connection: Connection) -> None:
        """It is of no use to whom it was made for: end it, unless others have places there. The next gets another."""
        with self._mutex:
            if any(place.connection is connection for place in list(self._places.values())):
                return
            if self._connections.get(connection.timeout) is connection:
                del self._connections[connection.timeout]
        connection.end()

    def _changed(self, connection: Connection) -> None:
        """A connection was lost or made, or a session has ended: told by kazoo's thread."""
        # Between connections nothing can be asked, and belief runs out by itself.
        tells = connection.connected or connection.session is None
        with self._mutex:
            awaited = list(self._awaited)
            places = list(self._places.values())
            found = {place.name for place in places if tells and place.connection is connection}
            self._suspects |= found
        for address in awaited:
            address.set()
        if found:
            self._ring()
        self.leftovers.sweep(connection)

    def slack(self, timeout: float) -> float:
        """How much earlier than a session's time-out belief ends: the leader may count from the word before the last,
        and from a tick before that (see ``pulse``). With some time to spare, for an answer that is late."""
        return timeout / _WORDS_PER_SESSION + min(self._tick, timeout / 2)

    def slack_of(self, place: Place, ttl: float, asked: float) -> float:
        """How much earlier than ``ttl`` after ``asked`` belief in ``place`` ends. Not less than ``slack``, with which
        the renewals go on; more, if the leader's last word is older."""
        since_word = max(0.0, asked - place.confirmed)
        return max(self.slack(ttl) + since_word, unheard(asked, place.counted, ttl))

    def expect(self, address: Address) -> None:
        """Set ``address`` at the next change of any connection."""
        with self._mutex:
            self._awaited.add(address)

    def expect_no_more(self, address: Address) -> None:
        with self._mutex:
            self._awaited.discard(address)

    # -- places ----------------------------------------------------------------------------------------------------

    def place(self, claim: Claim) -> Place | None:
        """That of the claim, if it has one."""
        return self._places.get(claim.owner)

    def settle(self, claim: Claim, place: Place) -> None:
        with self._mutex:
            self._places[claim.owner] = place
        claim.waiter = place.path

    def forget(self, claim: Claim) -> None:
        claim.waiter = None
        with self._mutex:
            place = self._places.pop(claim.owner, None)
        if place is not None:
            self._fresh.pop(place, None)
            place.watched = False  # it goes with our leave: no reason to wake the watchdog

    def held(self, place: Place) -> None:
        """It is at the head of the line. In a moment it is watched, if it is still there.

        Not at once: a watch is a request and an event, which is half of what a lock costs. Nor with the first renewal:
        a node that somebody has removed would be believed in for seconds.
        """
        self._fresh[place] = now()

    def _attend(self, connection: Connection) -> None:
        """Watch what has been held for a moment. Called by the session's thread whenever it has nothing else to do."""
        if self._fresh:
            due = now() - MOMENT
            for place, since in list(self._fresh.items()):
                if since <= due and place.connection is connection:
                    self._fresh.pop(place, None)
                    if connection.connected and not place.over and self.watch(place):
                        connection.watch(place.path, Then(ignore, partial(self._unwatched, place)))

    def watch(self, place: Place) -> bool:
        """Have a change of the node of ``place`` told. True: the caller must set the watch, as ``Watches`` says."""
        if place.watched:
            return False
        place.watched = True
        return place.connection.watches.add(place.path, partial(self._suspect, place))

    def _unwatched(self, place: Place, error: BaseException) -> None:
        """The node has gone already, or nobody knows whether the watch is set."""
        if isinstance(error, NoAuthError):
            self.unwatchable(place)
        else:
            place.connection.watches.fire(place.path)

    def unwatchable(self, place: Place) -> None:
        """We may not read our own node. No reason to wake the watchdog, which would try it again at once, and again."""
        place.watched = False
        place.connection.watches.fire(place.path)

    def _suspect(self, place: Place) -> None:
        if not place.watched:
            return
        place.watched = False
        if place.connection.connected:  # else it tells only that the connection is lost
            with self._mutex:
                self._suspects.add(place.name)
            self._ring()

    def suspects(self) -> Suspects:
        """What may have been lost since the last call."""
        with self._mutex:
            suspects, self._suspects = self._suspects, set()
        return suspects

    def _ring(self) -> None:
        if self.bell is not None:
            self.bell.set()

    def __len__(self) -> int:
        return len(self._places)

    # -- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> list[Connection]:
        """Have all sessions ended, and nobody begin another one. Does not wait; no lock of ours, for it may be called
        by ``__del__``."""
        first, self.closed = not self.closed, True
        connections = list(self._connections.values())
        if first:
            for connection in connections:
                connection.end()
        return connections

    def after_fork_in_child(self) -> None:
        self.closed = True
        for connection in self._connections.values():
            connection.after_fork_in_child()


def unheard(asked: float, known: float, timeout: float) -> float:
    """For how long, at ``asked``, the leader may have heard nothing of a session, if it counts from ``known``. A little
    longer than that: two clocks may run at different rates, as everywhere (the core's own margin)."""
    return asked - known + lease_time.margin(timeout)
