"""The ZooKeeper sessions of one client, and its places in line.

Shared by its callers and its watchdog: a node belongs to the session that created it, and is there only while that is
kept alive. A session has one time-out; so locks with a shorter ttl than the client's have another session, shared by
all of about the same ttl (see ``timeouts``), and ended when nothing has used it for a while.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from kazoo.exceptions import NoAuthError

from holdfast._core import lease_time
from holdfast._runtime.base import Wakeup
from holdfast._runtime.clock import now
from holdfast.engines.base import RequestFailed, SimpleAttempt
from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.handler import MOMENT
from holdfast.engines.zookeeper.leftovers import Leftovers
from holdfast.engines.zookeeper.place import Place
from holdfast.engines.zookeeper.reply import Address, Then, ignore
from holdfast.engines.zookeeper.timeouts import session_timeout
from holdfast.errors import UsageError

#: Less than there are pings.
_WORDS_PER_SESSION: Final = 4
#: Of one client, beside its own. The servers allow 60 connections of one host, by default.
_MOST_SESSIONS: Final = 16
#: A session beside the client's own that nothing has used for so long is ended. In seconds.
_IDLE: Final = 10.0
#: A caller that was given a session so short a time ago may be about to create a node in it. In seconds.
_JUST_GIVEN: Final = 1.0

Tell = Callable[[Connection], None]
Connect = Callable[[float, Tell, Tell], Connection]


class Hub:
    """Thread-safe."""

    def __init__(self, connect: Connect, ttl: float, tick: float) -> None:
        self.ttl = ttl
        self._tick = tick
        self.closed = False
        self.leftovers = Leftovers()
        self._users: tuple[int, ...] = ()
        self._connect = connect
        # Re-entrant: a task that never came to its end (its event loop was closed) gives up its place as garbage, on
        # whatever thread the collector runs; perhaps on one that is in here.
        self._mutex = threading.RLock()
        self._connections: dict[float, Connection] = {}
        self._places: dict[str, Place] = {}  # by the claim's owner
        self._fresh: dict[Place, float] = {}  # held since when, and not watched yet
        self._awaited: set[Address] = set()
        self._hints: dict[Wakeup, set[str]] = {}  # for each watchdog, what may have been lost
        self._early_hints: set[str] = set()  # for the first watchdog that comes

    # -- its users -------------------------------------------------------------------------------------------------

    def join(self, user: int) -> None:
        """The last two that have joined are the callers and the watchdog of the client as it is open now. Others may
        have been left by an opening that was interrupted, or by an event loop that has ended."""
        self._users = (*self._users[-1:], user)

    def leave(self, user: int) -> tuple[int, ...] | None:
        """Which of the last two are left; None if ``user`` was not one of them."""
        if user not in self._users:
            return None
        self._users = tuple(each for each in self._users if each != user)
        return self._users

    # -- sessions --------------------------------------------------------------------------------------------------

    def connection(self, ttl: float) -> Connection:
        """The one for locks with this ttl. Begins to connect, does not wait."""
        timeout = session_timeout(ttl, self.ttl)
        with self._mutex:
            if self.closed:
                raise RequestFailed("the client is closed", may_have_happened=False)
            connection = self._connections.get(timeout)
            if connection is None or connection.over:
                self._make_room(timeout)
                connection = self._connections[timeout] = self._connect(timeout, self._changed, self._attend)
            connection.used = now()
        connection.start()
        self._end_late(connection)
        return connection

    def _end_late(self, connection: Connection) -> None:
        if self.closed:  # while it was being made
            connection.end()

    def existing(self, ttl: float) -> Connection | None:
        """The one for locks with this ttl, if there is one."""
        return self._connections.get(session_timeout(ttl, self.ttl))

    def drop(self, connection: Connection) -> bool:
        """It is of no use to the caller it was made for: end it, unless others have places there. The next caller gets
        another one."""
        with self._mutex:
            if any(place.connection is connection for place in list(self._places.values())):
                connection.used = now()
                return False
            if self._connections.get(connection.timeout) is connection:
                del self._connections[connection.timeout]
        connection.end()
        return True

    def _make_room(self, timeout: float) -> None:
        """For one more. The one that was not used for the longest time is ended; if all are in use, UsageError."""
        connections = sorted(self._connections.values(), key=lambda connection: connection.used)
        others = [each for each in connections if not each.over and each.timeout != self.ttl]
        if timeout == self.ttl or len(others) < _MOST_SESSIONS or any(self.drop(each) for each in others):
            return
        in_use = ", ".join(f"{each.timeout:g}" for each in sorted(others, key=lambda connection: connection.timeout))
        raise UsageError(
            f"a lock with a ttl of {timeout:g} s needs another ZooKeeper session, which is a connection, and this "
            f"client has {len(others)} beside its own already, for ttls of {in_use} s: use fewer different ttls, or "
            "several clients"
        )

    def retire(self, connection: Connection, owners: Collection[str]) -> bool:
        """End it, if it carries nothing else than the places of ``owners`` and no caller was given it lately."""
        with self._mutex:
            places = [(owner, self._places.get(owner)) for owner in list(self._places)]
            carried = [owner for owner, place in places if place is not None and place.connection is connection]
            unused = now() - connection.used >= _JUST_GIVEN
            if not (connection.connected and unused and set(owners).issuperset(carried)):
                return False
            if self._connections.get(connection.timeout) is connection:
                del self._connections[connection.timeout]
        connection.end()
        return True

    def _end_idle(self, connection: Connection) -> None:
        """End it if nothing has used it for a while. The client's own stays."""
        if connection.timeout == self.ttl or now() - connection.used < _IDLE:
            return
        with self._mutex:  # so that no caller is given it meanwhile
            if now() - connection.used >= _IDLE and connection.pulse.unanswered_since() is None:
                self.drop(connection)

    def _changed(self, connection: Connection) -> None:
        """A connection was lost or made, or a session has ended: told by kazoo's thread."""
        # Between connections nothing can be asked, and belief runs out by itself.
        tells = connection.connected or connection.session is None
        with self._mutex:
            awaited = list(self._awaited)
            self._awaited.difference_update([address for address in awaited if address.is_orphan])
            places = list(self._places.values())
        for address in awaited:
            address.set()
        self._hint({place.name for place in places if tells and place.connection is connection})
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

    def place(self, attempt: SimpleAttempt) -> Place | None:
        """That of the attempt, if it has one."""
        return self._places.get(attempt.claim.owner)

    def settle(self, attempt: SimpleAttempt, place: Place) -> None:
        with self._mutex:
            self._places[attempt.claim.owner] = place
        attempt.queued = True

    def forget(self, attempt: SimpleAttempt) -> None:
        attempt.queued = False
        with self._mutex:
            place = self._places.pop(attempt.claim.owner, None)
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
        self._end_idle(connection)
        if self._fresh:
            due = now() - MOMENT
            # A list of the keys is made in one step; not so of the items, where the collector may strike.
            for place in list(self._fresh):
                if place.connection is connection and self._fresh.get(place, due + 1) <= due:
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
            self._hint({place.name})

    def hints(self, wakeup: Wakeup) -> set[str]:
        """What may have been lost, for the watchdog that sleeps on ``wakeup``, which is set when something is added."""
        hints = self._hints.setdefault(wakeup, set())
        while self._early_hints:
            hints.add(self._early_hints.pop())
        return hints

    def no_more_hints(self, wakeup: Wakeup) -> None:
        self._hints.pop(wakeup, None)

    def _hint(self, names: set[str]) -> None:
        if names:
            if not self._hints:
                self._early_hints.update(names)  # no watchdog sleeps yet: its thread is only starting
            for wakeup in list(self._hints):
                if (hints := self._hints.get(wakeup)) is not None:
                    hints.update(names)
                    wakeup.set()

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
        for connection in list(self._connections.values()):
            connection.after_fork_in_child()


def unheard(asked: float, known: float, timeout: float) -> float:
    """For how long, at ``asked``, the leader may have heard nothing of a session, if it counts from ``known``. A little
    longer than that: two clocks may run at different rates, as everywhere (the core's own margin)."""
    return asked - known + lease_time.margin(timeout)
