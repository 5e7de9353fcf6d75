"""The ZooKeeper sessions of one client, and its places in queues.

Shared by the client's callers and its watchdog: a node belongs to the session that created it, and exists only while
that session is kept alive. A session has one timeout, so locks with a shorter ttl than the client's use another
session, which locks with about the same ttl share (see ``timeouts``) and which is ended when it has not been used for a
while.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from kazoo.exceptions import NoAuthError

from holdfast._runtime.base import Wakeup
from holdfast._runtime.clock import now
from holdfast.engines.base import Granted, RequestFailed, SimpleAttempt
from holdfast.engines.clock_margin import clock_margin
from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.handler import MOMENT
from holdfast.engines.zookeeper.leftovers import Leftovers
from holdfast.engines.zookeeper.place import Place
from holdfast.engines.zookeeper.presences import Presences
from holdfast.engines.zookeeper.reply import Callbacks, ReplyReceiver, ignore
from holdfast.engines.zookeeper.timeouts import session_timeout
from holdfast.errors import UsageError

#: Less than the number of pings.
_CONFIRMATIONS_PER_SESSION: Final = 4
#: The number of additional sessions of one client. By default the servers allow 60 connections of one host.
_MOST_SESSIONS: Final = 16
#: An additional session is ended when it has not been used for this long, in seconds.
_IDLE: Final = 10.0
#: A caller that received a session within this time (in seconds) may be about to create a node in it.
_JUST_GIVEN: Final = 1.0

Tell = Callable[[Connection], None]
Attend = Callable[[Connection], float]
Connect = Callable[[float, Tell, Attend], Connection]


class Hub:
    """Thread-safe."""

    def __init__(self, connect: Connect, ttl: float, tick: float) -> None:
        self.ttl = ttl
        self._tick = tick
        self.closed = False
        self.leftovers = Leftovers()
        self.presences = Presences()
        self._users: tuple[int, ...] = ()
        self._connect = connect
        # Re-entrant: a task whose event loop was closed gives up its place when it is garbage collected, on any thread,
        # possibly on one that holds this lock.
        self._mutex = threading.RLock()
        self._connections: dict[float, Connection] = {}
        self._places: dict[str, Place] = {}  # by the claim's owner
        self._fresh: dict[Place, float] = {}  # held but not watched yet, and since when
        self._awaited: set[ReplyReceiver] = set()
        self._hints: dict[Wakeup, set[str]] = {}  # names that may have been lost, for each watchdog
        self._early_hints: set[str] = set()  # for the first watchdog that waits for hints

    # -- its users -------------------------------------------------------------------------------------------------

    def join(self, user: int) -> None:
        """The last two members are the session and the keeper of the client as it is open now. Earlier ones may remain
        from an interrupted opening, or from an event loop that has ended."""
        self._users = (*self._users[-1:], user)

    def leave(self, user: int) -> tuple[int, ...] | None:
        """The remaining ones of the last two members; None if ``user`` was not one of them."""
        if user not in self._users:
            return None
        self._users = tuple(each for each in self._users if each != user)
        return self._users

    # -- sessions --------------------------------------------------------------------------------------------------

    def connection(self, ttl: float) -> Connection:
        """The connection for locks with this ttl. Starts to connect, does not wait."""
        timeout = session_timeout(ttl, self.ttl)
        with self._mutex:
            if self.closed:
                raise RequestFailed("the client is closed", may_have_happened=False)
            connection = self._connections.get(timeout)
            if connection is None or connection.ended:
                self._make_room(timeout)
                connection = self._connections[timeout] = self._connect(timeout, self._changed, self._attend)
            connection.used = now()
        connection.start()
        self._end_late(connection)
        return connection

    def _end_late(self, connection: Connection) -> None:
        if self.closed:  # while the connection was being created
            connection.end()

    def existing(self, ttl: float) -> Connection | None:
        """The connection for locks with this ttl, if it exists."""
        return self._connections.get(session_timeout(ttl, self.ttl))

    def drop(self, connection: Connection) -> bool:
        """End a connection that its caller cannot use, unless it has places of others. The next caller gets a new
        one."""
        with self._mutex:
            if any(place.connection is connection for place in list(self._places.values())):
                connection.used = now()
                return False
            if self._connections.get(connection.timeout) is connection:
                del self._connections[connection.timeout]
        connection.end()
        return True

    def _make_room(self, timeout: float) -> None:
        """Make room for one more session: end the least recently used one. UsageError if all are in use."""
        connections = sorted(self._connections.values(), key=lambda connection: connection.used)
        others = [each for each in connections if not each.ended and each.timeout != self.ttl]
        if timeout == self.ttl or len(others) < _MOST_SESSIONS or any(self.drop(each) for each in others):
            return
        in_use = ", ".join(f"{each.timeout:g}" for each in sorted(others, key=lambda connection: connection.timeout))
        raise UsageError(
            f"a lock with a ttl of {timeout:g} s needs another ZooKeeper session, which is a connection, and this "
            f"client has {len(others)} beside its own already, for ttls of {in_use} s: use fewer different ttls, or "
            "several clients"
        )

    def retire(self, connection: Connection, owners: Collection[str]) -> bool:
        """End a connection that has only places of ``owners``, unless a caller received it a moment ago."""
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
        """End an additional session that has not been used for a while. The client's own session stays."""
        if connection.timeout == self.ttl or now() - connection.used < _IDLE:
            return
        with self._mutex:  # so that no caller receives it in the meantime
            if now() - connection.used >= _IDLE and connection.heartbeat.unanswered_since() is None:
                self.drop(connection)

    def _changed(self, connection: Connection) -> None:
        """A connection was lost or established, or a session has ended. Called on kazoo's thread."""
        # Without a connection nothing can be verified, and the deadline passes by itself.
        verifiable = connection.connected or connection.session is None
        with self._mutex:
            awaited = list(self._awaited)
            self._awaited.difference_update([receiver for receiver in awaited if receiver.is_orphan])
            places = list(self._places.values())
        for receiver in awaited:
            receiver.set()
        self._hint({place.name for place in places if verifiable and place.connection is connection})
        self.leftovers.sweep(connection)

    def slack(self, timeout: float) -> float:
        """How much earlier than a session's timeout the deadline is: the leader may count from the message before the
        last, and from a tick before that (see ``heartbeat``). With a reserve for late answers."""
        return timeout / _CONFIRMATIONS_PER_SESSION + min(self._tick, timeout / 2)

    def slack_of(self, place: Place, ttl: float, asked: float) -> float:
        """How much earlier than ``asked + ttl`` the deadline of ``place`` is. At least ``slack``, which the renewals
        use; more if the leader's last confirmation is older."""
        since_word = max(0.0, asked - place.confirmed)
        return max(self.slack(ttl) + since_word, unconfirmed_for(asked, place.counted, ttl))

    def expect(self, receiver: ReplyReceiver) -> None:
        """Set ``receiver`` at the next change of any connection."""
        with self._mutex:
            self._awaited.add(receiver)

    def expect_no_more(self, receiver: ReplyReceiver) -> None:
        with self._mutex:
            self._awaited.discard(receiver)

    # -- places ----------------------------------------------------------------------------------------------------

    def place(self, attempt: SimpleAttempt) -> Place | None:
        """The attempt's place, if it has one."""
        return self._places.get(attempt.claim.owner)

    def place_of(self, owner: str) -> Place | None:
        """The place of the claim of ``owner``, if it has one."""
        return self._places.get(owner)

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
            place.watched.clear()  # its removal is intended: do not wake the watchdog

    def granted(self, place: Place, asked: float, size: int = 0) -> Granted:
        """The place holds what it claims. A moment later it is watched, if it is still held.

        Not immediately: a watch is a request and an event, which is half the cost of a lock. Not with the first renewal
        either: the removal of the node would go unnoticed for seconds.
        """
        self._fresh[place] = now()
        # A server with other limits may have shortened the session while this one waited.
        ttl = min(place.ttl, place.connection.negotiated)
        return Granted(place.token, ttl, self.slack_of(place, ttl, asked), size)

    def _attend(self, connection: Connection) -> float:
        """Watch places that have been held for a moment, and remove waiters that look no more. Called by the session's
        thread when it is idle. For how many seconds it need not be called again."""
        self._end_idle(connection)
        if self._fresh:
            due = now() - MOMENT
            # A list of the keys is made atomically; one of the items is not, and the garbage collector may interfere.
            for place in list(self._fresh):
                if place.connection is connection and self._fresh.get(place, due + 1) <= due:
                    self._fresh.pop(place, None)
                    if connection.connected and not place.ended:
                        for path in self.watch(place):
                            connection.watch(path, Callbacks(ignore, partial(self._unwatched, place, path)))
        return self.presences.sweep()

    def watch(self, place: Place) -> list[str]:
        """Report a change of the nodes of ``place``. The caller must set a watch on each returned path, see
        ``Watches.add``."""
        new = [path for path in place.paths if path not in place.watched]
        place.watched.update(new)
        return [path for path in new if place.connection.watches.add(path, partial(self._suspect, place, path))]

    def _unwatched(self, place: Place, path: str, error: BaseException) -> None:
        """The node is gone, or it is unknown whether the watch is set."""
        if isinstance(error, NoAuthError):
            self.unwatchable(place, path)
        else:
            place.connection.watches.fire(path)

    def unwatchable(self, place: Place, path: str) -> None:
        """An ACL forbids reading our own node. Does not wake the watchdog, which would retry without a pause."""
        place.watched.discard(path)
        place.connection.watches.fire(path)

    def _suspect(self, place: Place, path: str) -> None:
        if path not in place.watched:
            return
        place.watched.discard(path)
        if place.connection.connected:  # otherwise the event only means that the connection is lost
            self._hint({place.name})

    def hints(self, wakeup: Wakeup) -> set[str]:
        """The names that may have been lost, for the watchdog that waits on ``wakeup``. Each new one sets it."""
        hints = self._hints.setdefault(wakeup, set())
        while self._early_hints:
            hints.add(self._early_hints.pop())
        return hints

    def no_more_hints(self, wakeup: Wakeup) -> None:
        self._hints.pop(wakeup, None)

    def _hint(self, names: set[str]) -> None:
        if names:
            if not self._hints:
                self._early_hints.update(names)  # no watchdog waits yet: its thread is starting
            for wakeup in list(self._hints):
                if (hints := self._hints.get(wakeup)) is not None:
                    hints.update(names)
                    wakeup.set()

    def __len__(self) -> int:
        return len(self._places)

    # -- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> list[Connection]:
        """End all sessions and allow no new ones. Does not wait, and takes no lock, since ``__del__`` may call it."""
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


def unconfirmed_for(asked: float, known: float, timeout: float) -> float:
    """For how long, at ``asked``, a session may have been silent for the leader, if it counts from ``known``. Includes
    the core's margin, since two clocks may run at different rates."""
    return asked - known + clock_margin(timeout)
