"""Connections of simulated clients: opened when needed, closed when an answer does not arrive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import hiredis

from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.dialect.packing import Argument
from holdfast.engines.redis.dialect.replies import error as error_of_reply
from holdfast.engines.redis.dialect.requests import Call
from tests.simulation.redis_model.keyspace import ReplyError
from tests.simulation.redis_model.server import Push
from tests.simulation.world.network import Link, Network, Request
from tests.simulation.world.runtime import SimulatedRuntime


def encoded(arguments: Sequence[Argument]) -> list[bytes]:
    """The words of a command as they are sent."""
    return [argument if isinstance(argument, bytes) else str(argument).encode() for argument in arguments]


class Wire:
    """A connection that is opened when needed, set up by ``greeting``, and closed when an answer does not arrive."""

    def __init__(
        self,
        runtime: SimulatedRuntime,
        network: Network,
        greeting: Sequence[Argument] = (),
        on_push: Callable[[Push | None], None] = lambda push: None,
    ) -> None:
        self.network = network
        self._runtime = runtime
        self._greeting = greeting
        self._on_push = on_push
        self._link: Link | None = None

    @property
    def is_open(self) -> bool:
        return self._link is not None and self._link.open

    def post(self, words: Sequence[bytes]) -> Flight | None:
        """Sends one command immediately. None: there is no open connection."""
        link = self._link
        return Flight(self, link, link.send(words)) if link is not None and link.open else None

    async def call(self, *commands: Sequence[Argument], until: float) -> Any:
        """Sends commands in one buffer and returns the reply to the last. Raises RequestFailed or ReplyError."""
        link = await self._connected(until)
        flights = [Flight(self, link, link.send(encoded(command))) for command in commands]
        return [await flight.reply(until) for flight in flights][-1]

    async def _connected(self, until: float) -> Link:
        if self._link is not None and self._link.open:
            return self._link
        try:
            link = await self.network.connect(self._runtime.process, self._on_push, until)
        except OSError as failure:
            raise RequestFailed(f"cannot connect: {failure}", may_have_happened=False) from failure
        if self._link is not None and self._link.open:  # another task has connected meanwhile
            link.close()
            return self._link
        self._link = link
        if self._greeting:
            link.send(encoded(self._greeting))  # order is kept: the connection is set up before the next command
        return link

    def drop(self, link: Link | None = None) -> None:
        """Closes the connection: a late answer must never be taken for that of another request."""
        link = link or self._link
        if link is not None:
            link.close()
            if link is self._link:
                self._link = None


class Flight:
    """A command under way."""

    __slots__ = ("_link", "_request", "wire")

    def __init__(self, wire: Wire, link: Link, request: Request) -> None:
        self.wire = wire
        self._link = link
        self._request = request

    async def reply(self, until: float) -> Any:
        """The reply. Raises ReplyError, or RequestFailed after closing the connection."""
        request = self._request
        if not await request.answered.wait(until):
            self.wire.drop(self._link)
            raise RequestFailed("no answer in time", may_have_happened=True)
        if isinstance(request.error, ConnectionError):
            self.wire.drop(self._link)
            raise RequestFailed(str(request.error), may_have_happened=True) from request.error
        if request.error is not None:
            raise request.error
        # RESP distinguishes a status from a string; a client that reads bytes does not.
        return request.reply.encode() if isinstance(request.reply, str) else request.reply

    def is_answered(self) -> bool:
        return self._request.answered.is_set()


def is_unknown_script(error: ReplyError) -> bool:
    """Whether the script did not run because the server does not know it."""
    return str(error).startswith("NOSCRIPT")


def words_of(network: Network, call: Call, *, by_source: bool = False) -> list[bytes]:
    """The words of a packed call, with the script that runs on this network."""
    reader = hiredis.Reader()
    reader.feed(call.packed)
    _, _, *tail = reader.gets()
    script = network.script(call.script)
    return [b"EVAL", script.source.encode(), *tail] if by_source else [b"EVALSHA", script.sha.encode(), *tail]


async def run(wire: Wire, call: Call, until: float, before: Sequence[Sequence[Argument]] = ()) -> Any:
    """Runs a script by its digest, or by its text if the server does not know it, after the commands ``before``."""
    try:
        try:
            return await wire.call(*before, words_of(wire.network, call), until=until)
        except ReplyError as error:
            if not is_unknown_script(error):
                raise
        return await wire.call(*before, words_of(wire.network, call, by_source=True), until=until)
    except ReplyError as error:
        raise error_of_reply(str(error)) from error
