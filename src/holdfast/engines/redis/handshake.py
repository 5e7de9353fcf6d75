"""Opening a connection: redis-py connects and introduces us, then we take the bare socket or transport over.

A handshake sends no request of ours, so whatever fails here did not happen. A refusal (password, ACL, certificate) is
told apart from a server that cannot be reached, and its text never holds a password.
"""

from __future__ import annotations

import asyncio
import encodings.idna  # noqa: F401  (else imported by the first connect: a fork in that moment keeps its import lock)
import socket
import ssl
import struct
from typing import Any, Final, cast

from redis import exceptions

from holdfast.engines.base import RequestFailed
from holdfast.engines.redis import replies
from holdfast.engines.redis.settings import Settings
from holdfast.errors import EngineRefused

_REFUSED: Final = (
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
    exceptions.DataError,
    exceptions.NoPermissionError,
)
#: Close with a reset: the kernel must not go on delivering what we have given up.
_NO_LINGER: Final = struct.pack("ii", 1, 0)


def reset_on_close(sock: Any) -> None:
    """Make the closing of ``sock`` drop what was not delivered yet."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    except OSError:
        pass  # closed or reset already: nothing lingers


def open_socket(settings: Settings, timeout: float) -> socket.socket:
    """A connected socket, authenticated and speaking RESP3. ``timeout`` bounds each step: connect, TLS, HELLO."""
    connection = settings.blocking_connection(timeout)
    name, connection.client_name = connection.client_name, None
    try:
        connection.connect()
        if name:
            connection.send_command("CLIENT", "SETNAME", name, check_health=False)
            try:
                connection.read_response()
            except exceptions.ResponseError:
                pass  # a name is a courtesy; an ACL may refuse it
        if connection._parser._reader.has_data():
            raise exceptions.ConnectionError("unexpected data after the handshake")
        taken, connection._sock = connection._sock, None  # from here on it is ours: redis-py must not close it
        return cast(socket.socket, taken)
    except Exception as error:
        failure = error
    finally:
        connection.disconnect()
    # Raised here, and not above, because a context cannot be removed: it might hold the password.
    raise _explained(failure, settings) from _cause(failure, settings)


async def open_transport(settings: Settings, timeout: float) -> asyncio.StreamWriter:
    """The same for an event loop, within ``timeout`` altogether. The writer's transport still needs its protocol."""
    connection = settings.asyncio_connection(timeout)
    name, connection.client_name = connection.client_name, None
    try:
        async with asyncio.timeout(timeout):
            await connection.connect()
            if name:
                await connection.send_command("CLIENT", "SETNAME", name, check_health=False)
                try:
                    await connection.read_response()
                except exceptions.ResponseError:
                    pass
        if connection._parser._reader.has_data() or connection._reader._buffer:
            raise exceptions.ConnectionError("unexpected data after the handshake")
        taken, connection._writer, connection._reader = connection._writer, None, None
        return cast(asyncio.StreamWriter, taken)
    except Exception as error:
        failure = error
    finally:
        if connection._writer is not None:  # failed or cancelled half-way
            connection._writer.transport.abort()
            connection._writer = connection._reader = None
    raise _explained(failure, settings) from _cause(failure, settings)


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
    unsaid = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
    text = replies.shown(str(error) or unsaid)
    password = settings.keywords.get("password")
    return "the text of this error is not shown: it holds the password" if password and password in text else text
