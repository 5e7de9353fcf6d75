"""Which server is the master: the sentinels are asked anew with each connection, so that a failover is followed.

A dead or demoted master loses its connections; the next one is opened to the server that a sentinel names as the
master. A sentinel may be dead, frozen or cut off from the others, and its answer old. So each gets a share of the time
only, its answer is verified at the server it names, and if that is not the master the next sentinel is asked.

redis-py does the connecting, to sentinels too. Its ``Sentinel.discover_master`` is not used: it reads the sentinels'
tables, in which the sentinel that leads a failover shows the old master until the last replica has moved over, seconds
after its answer to GET-MASTER-ADDR-BY-NAME is the new one; and it has no timeout for the whole search.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from holdfast._runtime.blocking import run
from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.connections import handshake
from holdfast.engines.redis.connections.aio_timeouts import LoopTimer
from holdfast.engines.redis.connections.settings import Settings
from holdfast.errors import EngineRefused

if TYPE_CHECKING:
    import asyncio
    import socket

T = TypeVar("T")
Ask = Callable[[Settings, handshake.Commands, float], Awaitable[list[Any]]]
Open = Callable[[Settings, float], Awaitable[T]]
Clock = Callable[[], float]

#: A sentinel: one or more ways to connect to it, the most promising first. They differ in their credentials.
Sentinel = tuple[Settings, ...]

#: The part of the time that is used: a waiting caller can then still be given the error, with the server's name.
_IN_TIME: Final = 0.95
#: Even if no time is left, try: the error then names the server that did not answer (s).
_LEAST: Final = 0.001


class Watched(NamedTuple):
    """A master as sentinels know it, and how to connect to it once its address is known."""

    name: str
    node: Settings
    #: Instead of the host that a sentinel names (an address behind NAT or in a container).
    host: str | None = None
    #: The answer of a sentinel that sees fewer others than this does not count.
    min_other_sentinels: int = 0


class MasterBySentinels:
    """See :class:`~holdfast.engines.redis.connections.settings.Sought`.

    Thread-safe; keeps nothing open that a fork could share.
    """

    def __init__(self, watched: Watched, sentinels: Sequence[Sentinel], address: str) -> None:
        self._watched = watched
        self._sentinels = tuple(sentinels)  # replaced as a whole: no lock that a fork could inherit locked
        self._address = address
        self.trying: str | None = None  #: the server that a connection is being made to, for errors

    @property
    def address(self) -> str:
        return self._address

    def open_socket(self, timeout: float) -> tuple[socket.socket, str]:
        return run(self._open(_ask, _open_socket, time.monotonic, timeout))

    async def open_transport(self, timeout: float) -> tuple[asyncio.StreamWriter, str]:
        timer = LoopTimer(timeout)
        try:
            return await self._open(handshake.ask_async, handshake.open_transport, timer.spent, timeout)
        finally:
            timer.stop()

    async def _open(self, ask: Ask, connect: Open[T], clock: Clock, timeout: float) -> T:
        """Ask one sentinel after the other until one names a server that is the master.

        The sentinel that was right the last time is asked first; those that were not are asked last.
        """
        deadline = clock() + timeout * _IN_TIME
        errors: list[RequestFailed | EngineRefused] = []
        visited: set[str] = set()  # servers that were named and are not the master
        asked = self._sentinels
        for place, sentinel in enumerate(asked):
            try:
                # One share for each sentinel, and one for the server: a frozen sentinel must not take it all.
                share = _left(clock, deadline) / (len(asked) - place + 1)
                way, node = await self._locate(ask, sentinel, clock, share)
                if node.address in visited:
                    raise _failed(f"{way.address} names {node.address} too")
                visited.add(node.address)
                self.trying = node.address
                opened = await _enter(node, way, connect, _left(clock, deadline))
            except (RequestFailed, EngineRefused) as error:
                errors.append(error)
                self._reorder(sentinel, sentinel[0], last=True)
            else:
                self._reorder(sentinel, way, last=False)
                self._address = node.address
                return opened
        raise self._outcome(errors) from errors[-1]

    async def _locate(self, ask: Ask, sentinel: Sentinel, clock: Clock, share: float) -> tuple[Settings, Settings]:
        """The settings by which ``sentinel`` accepted the connection, and the server that it names."""
        deadline = clock() + share
        name = self._watched.name
        commands = [("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name)]
        if self._watched.min_other_sentinels:
            commands.append(("SENTINEL", "MASTER", name))
        refusals: list[EngineRefused] = []
        for way in sentinel:
            try:
                place, *state = await ask(way, commands, _left(clock, deadline))
            except EngineRefused as error:
                refusals.append(error)
                continue
            if place is None:
                raise _UnknownMaster(f"{way.address} knows no master {name!r}")
            if state and int(state[0][b"num-other-sentinels"]) < self._watched.min_other_sentinels:
                raise _failed(f"{way.address} sees too few other sentinels")
            return way, self._watched.node.at(self._watched.host or place[0].decode(), int(place[1]))
        raise refusals[-1]

    def _reorder(self, sentinel: Sentinel, way: Settings, *, last: bool) -> None:
        """Ask ``sentinel`` first from now on, or last; and by ``way`` first."""
        # Compared by their address: another thread may have reordered the ways of this one meanwhile.
        others = tuple(other for other in self._sentinels if other[0].address != sentinel[0].address)
        this = (way, *(other for other in sentinel if other is not way))
        self._sentinels = (*others, this) if last else (this, *others)

    def _outcome(self, errors: Sequence[Exception]) -> RequestFailed | EngineRefused:
        """The error if no master was found. One sentinel may refuse what another accepts, so a refusal counts only if
        all refuse. A refusal by the master itself is final."""
        for error in errors:
            if isinstance(error, _RefusedByMaster):
                return EngineRefused(str(error))
        text = "; ".join(str(error) for error in errors)
        if all(isinstance(error, _UnknownMaster) for error in errors):
            return EngineRefused(f"{text}; name one that they watch (SENTINEL MASTERS lists them)")
        if all(isinstance(error, EngineRefused) for error in errors):
            return EngineRefused(f"{text}; sentinels are given sentinel_username and sentinel_password")
        return _failed(f"no master {self._watched.name!r} found: {text}")


class _UnknownMaster(EngineRefused):
    """A sentinel does not watch a master of that name."""


class _RefusedByMaster(EngineRefused):
    """The server that a sentinel names refuses the connection."""


async def _enter(node: Settings, way: Settings, connect: Open[T], timeout: float) -> T:
    """Connect to the server that a sentinel has named; an error also names the sentinel."""
    try:
        return await connect(node, timeout)
    except (RequestFailed, EngineRefused) as error:
        text = f"{error} (the master according to {way.address})"
        raise (_RefusedByMaster(text) if isinstance(error, EngineRefused) else _failed(text)) from error


def _failed(text: str) -> RequestFailed:
    return RequestFailed(text, may_have_happened=False)


def _left(clock: Clock, deadline: float) -> float:
    return max(deadline - clock(), _LEAST)


async def _ask(settings: Settings, commands: handshake.Commands, timeout: float) -> list[Any]:
    return handshake.ask(settings, commands, timeout)


async def _open_socket(settings: Settings, timeout: float) -> tuple[socket.socket, str]:
    return handshake.open_socket(settings, timeout)
