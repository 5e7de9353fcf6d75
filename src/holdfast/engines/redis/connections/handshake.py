"""Opening a connection: redis-py connects and authenticates, then the bare socket or transport is taken over.

A handshake sends no request of a caller, so a request that fails here did not happen. A refusal (password, ACL,
certificate) is distinguished from an unreachable server, and its text never contains a password.
"""

from __future__ import annotations

import asyncio
import encodings.idna  # noqa: F401  (else imported by the first connect: a fork in that moment keeps its import lock)
import socket
import ssl
import struct
import time
import weakref
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar, cast

from redis import exceptions

from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.connections.aio_timeouts import within
from holdfast.engines.redis.connections.settings import Server, Settings
from holdfast.engines.redis.dialect import replies
from holdfast.errors import EngineRefused

T = TypeVar("T")
Commands = Sequence[Sequence[str | int]]

#: Sent again for its answer, which contains the role. No ACL refuses it after the authentication.
_HELLO: Final = ("HELLO", 3)
_REFUSED: Final = (
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
    exceptions.DataError,
    exceptions.NoPermissionError,
)
#: Close with a reset: the kernel must not deliver requests that were given up.
_NO_LINGER: Final = struct.pack("ii", 1, 0)


def reset_on_close(sock: Any) -> None:
    """Makes closing ``sock`` drop data that was not delivered yet."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    except OSError:
        pass  # closed or reset already: nothing lingers


def open_socket(server: Server, timeout: float) -> tuple[socket.socket, str]:
    """A connected socket, authenticated and on RESP3, and the address of the server that it leads to. (Where the server
    must be found first, another thread may have found another one by now.)

    ``timeout`` bounds connecting and authenticating together. TLS has the same time once more, and how long a name
    lookup takes is up to the system.
    """
    if isinstance(server, Settings):
        return _connected(server, timeout, _taken), server.address
    return server.open_socket(timeout)


async def open_transport(server: Server, timeout: float) -> tuple[asyncio.StreamWriter, str]:
    """The same for an event loop. The writer's transport still needs its protocol."""
    if isinstance(server, Settings):
        return await _connected_async(server, timeout, _taken_async), server.address
    return await server.open_transport(timeout)


def ask(settings: Settings, commands: Commands, timeout: float) -> list[Any]:
    """The replies to ``commands``, over a connection of their own that is closed afterwards."""
    return _connected(settings, timeout, lambda connection: [_reply(connection, command) for command in commands])


async def ask_async(settings: Settings, commands: Commands, timeout: float) -> list[Any]:
    """The same for an event loop."""

    async def replies_of(connection: Any) -> list[Any]:
        return [await _reply_async(connection, command) for command in commands]

    return await _connected_async(settings, timeout, replies_of)


def _connected(settings: Settings, timeout: float, act: Callable[[Any], T]) -> T:
    """What ``act`` makes of a connection of redis-py. Whatever it does not take away is closed."""
    connection = settings.blocking_connection(timeout)
    name, connection.client_name = connection.client_name, None
    _hurry(connection, time.monotonic() + timeout)
    try:
        connection.connect()
        if name:
            try:
                _reply(connection, ("CLIENT", "SETNAME", name))
            except exceptions.ResponseError:
                pass  # the name is optional; an ACL may refuse it
        if settings.master_only:
            _check_master(_reply(connection, _HELLO), settings)
        return act(connection)
    except Exception as error:
        failure = error
    finally:
        connection.disconnect()
    # Raised here, and not above, because a context cannot be removed: it might hold the password.
    raise _explained(failure, settings) from _cause(failure, settings)


async def _connected_async(settings: Settings, timeout: float, act: Callable[[Any], Awaitable[T]]) -> T:
    connection = settings.asyncio_connection(None)  # redis-py's timeout would count what a busy loop does meanwhile
    name, connection.client_name = connection.client_name, None
    try:
        async with within(timeout):
            await connection.connect()
            if name:
                try:
                    await _reply_async(connection, ("CLIENT", "SETNAME", name))
                except exceptions.ResponseError:
                    pass
            if settings.master_only:
                _check_master(await _reply_async(connection, _HELLO), settings)
            return await act(connection)
    except Exception as error:
        failure = error
    finally:
        if connection._writer is not None:  # not taken: failed, cancelled, or not needed any more
            connection._writer.transport.abort()
            connection._writer = connection._reader = None
    raise _explained(failure, settings) from _cause(failure, settings)


def _hurry(connection: Any, deadline: float) -> None:
    """Once connected, give each step only the time that is left. redis-py applies its timeout to each step."""
    # Weak: a signal may interrupt a handshake anywhere. In a cycle with its connection, the socket would stay open
    # until the garbage collector runs.
    known = weakref.ref(connection)

    def send_in_time(*command: Any, **options: Any) -> None:
        connecting: Any = known()
        left = deadline - time.monotonic()
        if left <= 0:
            raise exceptions.TimeoutError
        connecting._sock.settimeout(left)
        type(connecting).send_command(connecting, *command, **options)

    connection.send_command = send_in_time


def _reply(connection: Any, command: Sequence[str | int]) -> Any:
    connection.send_command(*command, check_health=False)
    return connection.read_response()


async def _reply_async(connection: Any, command: Sequence[str | int]) -> Any:
    await connection.send_command(*command, check_health=False)
    return await connection.read_response()


def _check_master(greeting: Any, settings: Settings) -> None:
    """Refuse a replica. It refuses writes, but answers a script that finds nothing to write: it would report a lock as
    gone that the master has, and as busy one that is free there."""
    role = greeting.get(b"role", b"master" if settings.remedy else b"no data node")
    if role in replies.REPLICA_ROLES or (role != b"master" and not settings.remedy):
        raise exceptions.ConnectionError(f"it is at present a {role.decode()}, not the master{settings.remedy}")


def _taken(connection: Any) -> socket.socket:
    if connection._parser._reader.has_data():
        raise exceptions.ConnectionError("unexpected data after the handshake")
    taken, connection._sock = connection._sock, None  # from here on redis-py must not close it
    return cast(socket.socket, taken)


async def _taken_async(connection: Any) -> asyncio.StreamWriter:
    if connection._parser._reader.has_data() or connection._reader._buffer:
        raise exceptions.ConnectionError("unexpected data after the handshake")
    taken, connection._writer, connection._reader = connection._writer, None, None
    return cast(asyncio.StreamWriter, taken)


def _explained(error: Exception, settings: Settings) -> RequestFailed | EngineRefused:
    text = f"{settings.address}: {_without_secrets(error, settings)}"
    chain: BaseException | None = error
    while chain is not None:
        if isinstance(chain, ssl.SSLCertVerificationError):
            return EngineRefused(
                f"{settings.address}: the server's certificate was not accepted: {chain.verify_message}"
            )
        chain = chain.__cause__ or chain.__context__
    if isinstance(error, _REFUSED):
        return EngineRefused(f"{text} (Redis refused the connection; check user name, password and ACL)")
    if isinstance(error, exceptions.ResponseError):
        answer = replies.error(_without_secrets(error, settings))
        return type(answer)(text, may_have_happened=False) if isinstance(answer, RequestFailed) else EngineRefused(text)
    return RequestFailed(f"cannot connect to {text}", may_have_happened=False)


def _cause(error: Exception, settings: Settings) -> Exception | None:
    return error if _without_secrets(error, settings) == str(error) else None


def _without_secrets(error: Exception, settings: Settings) -> str:
    default = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
    text = replies.shown(str(error) or default)
    password = settings.keywords.get("password")
    return "the text of this error is not shown: it holds the password" if password and password in text else text
