"""How a waiter is woken: by client tracking; where the server cannot, by Redisson's channel; at worst by polling. And
how a release hands the lock over to it: by a push to a channel of its own connection.

Decided once per server, by trying: some servers accept CLIENT TRACKING and push nothing, an ACL may refuse any of it.
Written once for sync and async, which differ in how a connection is obtained and how its pushes are received.
"""

from __future__ import annotations

import abc
import enum
import random
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

import hiredis

from holdfast._runtime import clock
from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.dialect import replies
from holdfast.engines.redis.dialect.keys import WAKE, hash_tag, listeners_of, prefixed, suffix_of
from holdfast.engines.redis.dialect.packing import Argument
from holdfast.engines.redis.dialect.requests import Publish

_TRACK: Final = ("CLIENT", "TRACKING", "ON", "OPTIN")
_CACHE: Final = ("CLIENT", "CACHING", "YES")
_PROBE_TTL_MS: Final = 5000
_LISTENER_TTL_MS: Final = 2000
_GONE: Final = -2  # PTTL of a key that is not there
#: In place of an answer.
_REFUSED: Final = object()
#: How often to look where no push wakes a waiter (s): some 30 small requests a second for each waiting process.
_LOOK_EVERY: Final = 0.04


class Way(enum.Enum):
    """How waiters of one server are woken, best first."""

    TRACKING = "tracking"
    CHANNEL = "channel"
    POLLING = "polling"


SUBSCRIPTIONS: Final[Mapping[Publish, Sequence[str]]] = {
    "PUBLISH": ("SUBSCRIBE",),
    "SPUBLISH": ("SSUBSCRIBE",),
    "BOTH": ("SUBSCRIBE", "SSUBSCRIBE"),
}


class Wakes:
    """The channels of its own that a connection has subscribed to: there it is pushed what a waiter was handed over."""

    __slots__ = ("id", "subjects", "wire")

    def __init__(self, *, sharded: bool) -> None:
        self.id = secrets.token_hex(8)
        self.wire = f"{'s' if sharded else 'p'}{self.id}"  #: as scripts know it, see turn.lua
        self.subjects: set[bytes] = set()


class Connection(Protocol):
    """A connection that receives pushes."""

    tracking: bool
    wakes: Wakes | None


class Host(Protocol):
    """The channel that a watch belongs to."""

    way: Way | None
    publish: Publish
    wakes: bool  #: connections may subscribe to channels of their own, as far as is known
    clustered: bool  #: it is one of several servers, which pass messages on to each other

    async def command(self, args: Sequence[Argument], timeout: float) -> Any: ...

    async def pause(self, seconds: float) -> None: ...


C = TypeVar("C", bound=Connection)


class BaseWatch(abc.ABC, Generic[C]):
    """A :class:`~holdfast.engines.redis.connections.channel.Watch`, but for the connection."""

    _timeout = 0.0
    _polled: Sequence[Argument] | None = None  # how to look, where no push wakes the waiter
    _seen: Any = None  # what the last such look has read
    _ends = False  # such looks

    def __init__(self, host: Host) -> None:
        self._host = host

    # -- what sync and async add -----------------------------------------------------------------------------------

    @abc.abstractmethod
    async def _connection(self, timeout: float) -> C:
        """The connection that this watch listens on."""

    @abc.abstractmethod
    def _expect(self, connection: C, key: bytes) -> None:
        """From now on, wait for a push about ``key``."""

    @abc.abstractmethod
    def _subscribe(self, connection: C, channel: bytes) -> bool:
        """As _expect, for a channel; whether a SUBSCRIBE must be sent for it."""

    @abc.abstractmethod
    async def _ask(self, connection: C, commands: Sequence[Sequence[Argument]], timeout: float) -> list[Any]:
        """Send ``commands`` adjacent on ``connection``; all replies."""

    @abc.abstractmethod
    async def _wait_for_push(self, until: float) -> bool:
        """Sleep until the push has come or the connection was lost: True; at ``until``: False."""

    @abc.abstractmethod
    def _is_lost(self, connection: C) -> bool: ...

    @abc.abstractmethod
    def _sit(self, connection: C, waiter: bytes) -> None:
        """From now on, wait for what is pushed to ``waiter``, too."""

    # -- the port --------------------------------------------------------------------------------------------------

    @property
    def polls(self) -> bool:
        return self._polled is not None

    async def take_seat(self, channel: str, waiter: str, timeout: float) -> str | None:
        host = self._host
        if not host.wakes or host.way is Way.CHANNEL or host.way is Way.POLLING:
            return None
        sharded = host.clustered
        if sharded and host.publish == "PUBLISH":
            return None  # each message would go to all servers of the cluster, and its count is not theirs
        self._timeout, self._polled = timeout, None
        connection = await self._connection(timeout)
        self._sit(connection, waiter.encode())
        wakes = connection.wakes
        if wakes is None:
            wakes = connection.wakes = Wakes(sharded=sharded)
        elif wakes.subjects and not sharded:
            return wakes.wire  # one for all locks
        subject = f"{WAKE}{suffix_of(channel)}:{wakes.id}" if sharded else f"{WAKE}:{wakes.id}"
        if (word := subject.encode()) not in wakes.subjects:
            subscribe = "SSUBSCRIBE" if sharded else "SUBSCRIBE"
            if _last([*await self._ask(connection, ((subscribe, subject),), timeout), None]) is _REFUSED:
                host.wakes = False
                return None
            wakes.subjects.add(word)
        return wakes.wire

    async def arm(self, key: str, channel: str, timeout: float) -> int:
        return int(await self.arm_reading(("PTTL", key), channel, timeout))

    async def arm_reading(self, words: Sequence[Argument], channel: str, timeout: float) -> Any:
        host, self._timeout, self._polled, key = self._host, timeout, None, str(words[1])
        if host.way is None:
            host.way = await self._probe(key, timeout)
        if host.way is Way.TRACKING:
            connection = await self._connection(timeout)
            self._expect(connection, key.encode())
            # They must be neighbours: CACHING applies to the next command only.
            commands = [_CACHE, words] if connection.tracking else [_TRACK, _CACHE, words]
            answer = _last(await self._ask(connection, commands, timeout))
            if answer is not _REFUSED:
                connection.tracking = True
                return answer
            host.way = Way.CHANNEL  # the ACL has changed since it was tried
        if host.way is Way.CHANNEL:
            connection = await self._connection(timeout)
            new = self._subscribe(connection, channel.encode())
            subscribe = [(word, channel) for word in SUBSCRIPTIONS[host.publish]] if new else []
            # Announced first: else a release might take it for another program's, see yield.lua.
            announced = listeners_of(channel)
            announce = [("SET", announced, "1", "PX", _LISTENER_TTL_MS)] if announced else []
            commands = [*announce, *subscribe, words]
            answer = _last(await self._ask(connection, commands, timeout))
            if answer is not _REFUSED:
                return answer
            host.way = Way.POLLING
        self._polled = words
        self._seen = await self._look(words)
        return self._seen

    async def pushed(self, until: float) -> bool:
        words = self._polled
        if words is None:
            return await self._wait_for_push(until)
        self._ends = False
        while (left := until - clock.now()) > 0 and not self._ends:
            await self._host.pause(min(left, _LOOK_EVERY * random.uniform(0.5, 1.0)))
            try:
                found = await self._look(words)
            except RequestFailed:
                return True
            # A lock's PTTL changes all the time: it matters that the lock is gone.
            if found == _GONE if words[0] == "PTTL" else found != self._seen:
                return True
        return False

    def end_wait(self) -> None:
        self._ends = True

    async def _look(self, words: Sequence[Argument]) -> Any:
        return await self._host.command(words, self._timeout)

    async def _probe(self, key: str, timeout: float) -> Way:
        """Track a key of our own in the slot of ``key``, delete it, and expect a push about it.

        Named after the lock, also where ``key`` is a side key: an ACL allows the keys of its locks.
        """
        connection = await self._connection(timeout)
        probe = f"{prefixed('holdfast_probe', hash_tag(key))}:{secrets.token_hex(8)}"
        self._expect(connection, probe.encode())
        commands = (_TRACK, ("SET", probe, "1", "PX", _PROBE_TTL_MS), _CACHE, ("PTTL", probe), ("DEL", probe))
        if _last(await self._ask(connection, commands, timeout)) is _REFUSED:
            return Way.CHANNEL
        connection.tracking = True
        pushed = await self._wait_for_push(clock.now() + timeout)
        if self._is_lost(connection):
            raise RequestFailed("the connection was lost while trying client tracking", may_have_happened=False)
        return Way.TRACKING if pushed else Way.CHANNEL


def _last(answers: Sequence[Any]) -> Any:
    """The last answer; _REFUSED if a command before it was refused."""
    for answer in answers[:-1]:
        if answer.__class__ is hiredis.ReplyError:
            error = replies.error(str(answer))
            if isinstance(error, RequestFailed | replies.Redirected):
                raise error
            return _REFUSED
    return replies.checked(answers[-1])
