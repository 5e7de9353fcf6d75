"""How to connect: from a URL, or from an existing client of redis-py, whose own connections are not used.

redis-py makes the connections (TLS, AUTH, unix sockets, credential providers). Its retries are off: a request that it
repeats is a late duplicate. The timeouts of each connection are set by the engine.

:class:`Settings` is one server with a known address. A server whose address must be looked up is a :class:`Sought`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol

import redis.asyncio.connection as asyncio_connections
import redis.connection as blocking_connections
from redis.connection import parse_url

from holdfast.engines.redis.dialect.packing import Packer
from holdfast.errors import UsageError

if TYPE_CHECKING:
    import asyncio
    import socket

#: Settings that are passed on, beside ssl_*. The engine decides all others (pools, retries, decoding, timeouts).
_KEPT: Final = frozenset(
    {
        "client_name", "credential_provider", "db", "host", "password", "path", "port", "redis_connect_func",
        "socket_keepalive", "socket_keepalive_options", "socket_type", "username",
    }
)  # fmt: skip
#: Set by the engine, if the class has them. RESP3, because wake-ups are pushed between replies. No CLIENT SETINFO: an
#: ACL may refuse it, and it costs two round trips.
_FORCED: Final[Mapping[str, Any]] = {
    "protocol": 3,
    "decode_responses": False,
    "driver_info": None,
    "command_packer": Packer(),
}

_CLASSES: Final = (
    ("unix", blocking_connections.UnixDomainSocketConnection, asyncio_connections.UnixDomainSocketConnection),
    ("rediss", blocking_connections.SSLConnection, asyncio_connections.SSLConnection),
    ("redis", blocking_connections.Connection, asyncio_connections.Connection),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """A server and how to connect to it. Its repr and ``address`` contain no secret."""

    address: str
    blocking_class: type[Any] = field(repr=False)
    asyncio_class: type[Any] = field(repr=False)
    keywords: Mapping[str, Any] = field(repr=False)
    #: A server that is a replica is refused. With a remedy: only if it reports the role, since a proxy in front of the
    #: server may not know the command.
    master_only: bool = False
    remedy: str = ""

    def at(self, host: str, port: int) -> Settings:
        """The same settings for another server."""
        keywords = {**self.keywords, "host": host, "port": port}
        return replace(self, address=_address(self.address.partition("://")[0], keywords), keywords=keywords)

    def blocking_connection(self, timeout: float) -> Any:
        """A connection of redis-py for threads, not yet connected; each of its steps is bounded by ``timeout``."""
        return self._connection(self.blocking_class, timeout)

    def asyncio_connection(self, timeout: float | None) -> Any:
        """The same for an event loop."""
        return self._connection(self.asyncio_class, timeout)

    def _connection(self, kind: type[Any], timeout: float | None) -> Any:
        known = _parameters(kind)  # type: ignore[arg-type]  # mypy: a class of unknown metaclass is not hashable
        for name in self.keywords.keys() - known:
            # Not dropped silently: it may be a check of the server's certificate.
            raise UsageError(f"redis-py has no setting {name!r} for this kind of connection; remove it")
        forced = {name: value for name, value in _FORCED.items() if name in known}
        return kind(**self.keywords, **forced, socket_timeout=timeout, socket_connect_timeout=timeout)


class Sought(Protocol):
    """A server whose address is looked up for each connection."""

    @property
    def address(self) -> str:
        """Its last address, or else the servers that are asked for it; without secrets."""

    def open_socket(self, timeout: float) -> tuple[socket.socket, str]:
        """See :func:`holdfast.engines.redis.connections.handshake.open_socket`."""

    async def open_transport(self, timeout: float) -> tuple[asyncio.StreamWriter, str]:
        """See :func:`holdfast.engines.redis.connections.handshake.open_transport`."""


Server = Settings | Sought


def from_url(url: str, keywords: Mapping[str, Any]) -> Settings:
    """From a redis://, rediss:// or unix:// URL, and keywords of redis-py's connections that win over it."""
    try:
        found: dict[str, Any] = {**parse_url(url), **keywords}  # type: ignore[no-untyped-call]
    except ValueError:
        # Not chained: the original error quotes the text, which may be half a password.
        raise UsageError("the Redis URL cannot be read; user info must be percent-encoded") from None
    return from_keywords(found.pop("connection_class", blocking_connections.Connection), found)


def from_client(client: Any) -> Settings:
    """From the settings of a ``redis.Redis`` or ``redis.asyncio.Redis``. Its pool and connections are not used."""
    pool = getattr(client, "connection_pool", None)
    if pool is None:
        kind = type(client)
        raise UsageError(f"{kind.__module__}.{kind.__qualname__} is not a client of redis-py for a single server")
    return from_keywords(pool.connection_class, pool.connection_kwargs)


def from_keywords(kind: type[Any], found: Mapping[str, Any]) -> Settings:
    """From a sync or async connection class of redis-py, and those of its keywords that are passed on."""
    keywords = {
        name: value
        for name, value in found.items()
        if (name in _KEPT or name.startswith("ssl_")) and value is not None and value is not False
    }
    # A check that is switched off must stay off; for all other keywords False and absent are the same.
    keywords |= {name: found[name] for name in ("ssl_check_hostname", "socket_keepalive") if found.get(name) is False}
    if "ssl_cert_reqs" in found:
        keywords["ssl_cert_reqs"] = found["ssl_cert_reqs"]  # None means: verify nothing
    for scheme, blocking_class, asyncio_class in _CLASSES:
        # A subclass of the user's is used for its own API, sync or async.
        if issubclass(kind, blocking_class):
            return Settings(_address(scheme, keywords), kind, asyncio_class, keywords)
        if issubclass(kind, asyncio_class):
            return Settings(_address(scheme, keywords), blocking_class, kind, keywords)
    raise UsageError(f"connections of type {kind.__name__} are not for a single server; give a URL")


def _address(scheme: str, keywords: Mapping[str, Any]) -> str:
    database = keywords.get("db", 0)
    if scheme == "unix":
        return f"unix://{keywords.get('path', '')}" + (f"?db={database}" if database else "")
    host = str(keywords.get("host", "localhost"))
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{keywords.get('port', 6379)}/{database}"


@lru_cache(maxsize=16)  # asked for each connection; a user's own classes are few
def _parameters(kind: type[Any]) -> frozenset[str]:
    constructors: list[Any] = [vars(base)["__init__"] for base in kind.__mro__ if "__init__" in vars(base)]
    return frozenset(name for constructor in constructors for name in inspect.signature(constructor).parameters)
