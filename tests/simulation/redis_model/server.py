"""The parts of a Redis server that the engine relies on: keys, scripts, client tracking, pub/sub, and its faults."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.simulation.redis_model.commands import COMMANDS, OK, Words, integer
from tests.simulation.redis_model.keyspace import Keyspace, ReplyError
from tests.simulation.redis_model.lua import shared_host

Push = tuple[Any, ...]
_NO_SCRIPT: Final = "NOSCRIPT No matching script. Please use EVAL."


class ServerConnection:
    """One client's connection, as the server sees it."""

    __slots__ = ("caching", "channels", "noloop", "optin", "optout", "push", "tracking")

    def __init__(self, push: Callable[[Push], None]) -> None:
        self.push = push
        self.tracking = False
        self.optin = False
        self.optout = False
        self.noloop = False
        self.caching = False  #: CLIENT CACHING was sent: the next command is tracked (OPTIN) or not tracked (OPTOUT)
        self.channels: set[bytes] = set()

    @property
    def remembers(self) -> bool:
        """Whether the keys that the present command reads are tracked."""
        return self.caching if self.optin else not (self.optout and self.caching)


class RedisModel:
    """Executes commands, one at a time. ``microseconds`` is its clock, which looks like wall time.

    Client tracking is that of Redis 7: keys *read* by a tracking connection (with OPTIN: by the one command after
    CACHING YES; with OPTOUT: not by the one after CACHING NO), also inside scripts, are remembered once; any change
    pushes and forgets them, without a push to the connection that made the change itself if that has NOLOOP.
    """

    def __init__(self, microseconds: Callable[[], int]) -> None:
        self.microseconds = microseconds
        self.keys = Keyspace(self.milliseconds, self._touched)
        self.connections: dict[ServerConnection, None] = {}
        self._scripts: dict[bytes, str] = {}
        self._tracked: dict[bytes, dict[ServerConnection, None]] = {}
        self._current: ServerConnection | None = None
        self._frozen: int | None = None  # the time of the running command or script, which does not advance
        self._outbox: list[tuple[ServerConnection, Push]] = []

    def milliseconds(self) -> int:
        return (self.microseconds() if self._frozen is None else self._frozen) // 1000

    # -- connections ---------------------------------------------------------------------------------------------------

    def connect(self, push: Callable[[Push], None]) -> ServerConnection:
        connection = ServerConnection(push)
        self.connections[connection] = None
        return connection

    def disconnect(self, connection: ServerConnection) -> None:
        self.connections.pop(connection, None)
        for watchers in self._tracked.values():
            watchers.pop(connection, None)

    def drain(self) -> None:
        """Sends the pushes that the last command caused. Call it after its reply was sent."""
        outbox, self._outbox = self._outbox, []
        for connection, push in outbox:
            if connection in self.connections:
                connection.push(push)

    # -- commands ------------------------------------------------------------------------------------------------------

    def execute(self, connection: ServerConnection, words: Sequence[bytes]) -> Any:
        """The reply to one command; raises ReplyError for an error reply."""
        name = words[0].upper()
        self._current = connection
        self._frozen = self.microseconds()
        try:
            handler = _CONNECTION_COMMANDS.get(name)
            if handler is not None:
                return handler(self, connection, words[1:])
            return self._data_command(words)
        finally:
            self._current = self._frozen = None
            if not (name == b"CLIENT" and words[1:2] == [b"CACHING"]):
                connection.caching = False

    def _data_command(self, words: Words) -> Any:
        command = COMMANDS.get(words[0]) or COMMANDS.get(words[0].upper())
        arguments = words[1:]
        if command is None:
            return self._other_command(words[0].upper(), arguments)
        run, reads, least, most = command
        if not least <= len(arguments) <= most:
            raise ReplyError(f"ERR wrong number of arguments for '{words[0].decode().lower()}' command")
        reply = run(self.keys, self.milliseconds(), arguments)
        if reads is not None:
            self._remember(arguments[reads])
        return reply

    def _other_command(self, name: bytes, arguments: Words) -> Any:
        """Commands without keys."""
        if name == b"TIME":
            assert self._frozen is not None
            return [b"%d" % part for part in divmod(self._frozen, 1_000_000)]
        if name in (b"PUBLISH", b"SPUBLISH"):
            return self._publish(*arguments)
        if name == b"PUBSUB" and arguments[0].upper() == b"NUMSUB":
            return [arguments[1], sum(arguments[1] in connection.channels for connection in self.connections)]
        if name == b"INFO" and arguments == [b"replication"]:
            return b"role:master\r\nconnected_slaves:0\r\nrepl_backlog_active:0\r\n"
        raise NotImplementedError(f"the Redis model does not know {name.decode()}: {arguments!r}")

    def _publish(self, channel: bytes, payload: bytes) -> int:
        receivers = [connection for connection in self.connections if channel in connection.channels]
        self._outbox += [(connection, ("message", channel, payload)) for connection in receivers]
        return len(receivers)

    # -- tracking ------------------------------------------------------------------------------------------------------

    def _remember(self, keys: Sequence[bytes]) -> None:
        reader = self._current
        if reader is not None and reader.tracking and reader.remembers:
            for key in keys:
                self._tracked.setdefault(key, {})[reader] = None

    def _touched(self, key: bytes) -> None:
        for watcher in self._tracked.pop(key, ()):
            if not (watcher is self._current and watcher.noloop):
                self._outbox.append((watcher, ("invalidate", [key])))

    # -- scripts -------------------------------------------------------------------------------------------------------

    def _evalsha(self, connection: ServerConnection, words: Words) -> Any:
        source = self._scripts.get(words[0].lower())
        if source is None:
            raise ReplyError(_NO_SCRIPT)
        return self._run(source, words[1:])

    def _eval(self, connection: ServerConnection, words: Words) -> Any:
        self._load(words[0])
        return self._run(words[0].decode(), words[1:])

    def _run(self, source: str, words: Words) -> Any:
        count = integer(words[0])
        return shared_host().run(source, words[1 : 1 + count], words[1 + count :], self._data_command)

    def _load(self, source: bytes) -> bytes:
        sha = hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()
        shared_host().compile(source.decode())
        self._scripts[sha] = source.decode()
        return sha

    def _script(self, connection: ServerConnection, words: Words) -> Any:
        match words[0].upper():
            case b"LOAD":
                return self._load(words[1])
            case b"FLUSH":
                self._scripts.clear()
                return OK
        raise NotImplementedError(f"the Redis model does not know SCRIPT {words!r}")

    # -- connection commands -------------------------------------------------------------------------------------------

    def _client(self, connection: ServerConnection, words: Words) -> Any:
        match [word.upper() for word in words]:
            case [b"TRACKING", b"ON", *options] if {*options} <= {b"OPTIN", b"OPTOUT", b"NOLOOP"}:
                connection.tracking = True
                connection.optin = b"OPTIN" in options
                connection.optout = b"OPTOUT" in options
                connection.noloop = b"NOLOOP" in options
            case [b"CACHING", b"YES"]:
                if not connection.optin:
                    raise ReplyError("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.")
                connection.caching = True
            case [b"CACHING", b"NO"]:
                if not connection.optout:
                    raise ReplyError("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.")
                connection.caching = True
            case _:
                raise NotImplementedError(f"the Redis model does not know CLIENT {words!r}")
        return OK

    def _subscribe(self, connection: ServerConnection, words: Words) -> Any:
        connection.channels.update(words)
        return None

    def _ping(self, connection: ServerConnection, words: Words) -> Any:
        return "PONG"

    def _role(self, connection: ServerConnection, words: Words) -> Any:
        return [b"master", 0, []]

    def _wait(self, connection: ServerConnection, words: Words) -> Any:
        return 0

    def _flushall(self, connection: ServerConnection, words: Words) -> Any:
        self.flush()
        return OK

    # -- faults of a server --------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """FLUSHALL: tracking connections get one null push."""
        self.keys.clear()
        self._tracked.clear()
        self._outbox += [(connection, ("invalidate", None)) for connection in self.connections if connection.tracking]

    def delete(self, key: bytes) -> None:
        """DEL by an operator."""
        if key in self.keys:
            self.keys.remove(key)

    def forget_scripts(self) -> None:
        """SCRIPT FLUSH."""
        self._scripts.clear()

    def restart(self, *, empty: bool) -> None:
        """Restarts, ``empty`` as after kill -9 without persistence. The network cuts the connections."""
        self.connections.clear()
        if empty:
            self.keys.clear()
        self._tracked.clear()
        self._scripts.clear()
        self._outbox.clear()


_CONNECTION_COMMANDS: Final[dict[bytes, Callable[[RedisModel, ServerConnection, Words], Any]]] = {
    b"CLIENT": RedisModel._client,
    b"EVAL": RedisModel._eval,
    b"EVALSHA": RedisModel._evalsha,
    b"FLUSHALL": RedisModel._flushall,
    b"PING": RedisModel._ping,
    b"ROLE": RedisModel._role,
    b"SCRIPT": RedisModel._script,
    b"SUBSCRIBE": RedisModel._subscribe,
    b"WAIT": RedisModel._wait,
}
