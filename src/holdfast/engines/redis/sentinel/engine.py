"""The Redis engine on a master that sentinels watch: ``redis+sentinel://h1,h2,h3/MASTER``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import redis.asyncio.connection as asyncio_connections
import redis.connection as blocking_connections

from holdfast.engines.redis.connections import settings
from holdfast.engines.redis.connections.settings import Settings
from holdfast.engines.redis.engine import TOKEN_TTL, RedisEngine, failover_guarantees
from holdfast.engines.redis.sentinel.discovery import MasterBySentinels, Sentinel, Watched
from holdfast.engines.redis.url import SentinelTarget
from holdfast.errors import UsageError

#: A sentinel has no databases, and users of its own.
_CREDENTIALS: Final = frozenset({"credential_provider", "password", "username"})
_NOT_FOR_SENTINELS: Final = _CREDENTIALS | {"client_name", "db", "redis_connect_func"}

#: What a sentinel is called in errors, before its host and port.
_NAMED: Final = "sentinel "


class SentinelEngine(RedisEngine):
    """See :class:`holdfast.engines.base.Engine`. Everything above the connections is as on a single server."""

    scheme = "redis+sentinel"

    def __init__(self, watched: Watched, sentinels: Sequence[Sentinel], token_ttl: float | None, replicas: int) -> None:
        scheme, _, _ = watched.node.address.partition("://")
        hosts = ",".join(sentinel[0].address.removeprefix(_NAMED) for sentinel in sentinels)
        self._where = f"{scheme}+sentinel://{hosts}/{watched.name}/{watched.node.keywords.get('db', 0)}"
        super().__init__(MasterBySentinels(watched, sentinels, self._where), token_ttl, failover_guarantees(replicas))

    def __repr__(self) -> str:
        return f"<redis engine {self._where}>"


def connect(target: Any, options: dict[str, Any]) -> SentinelEngine:
    """The engine for a :class:`SentinelTarget`, or for a client of redis-py made by ``Sentinel.master_for``, sync or
    async, whose own connections are not touched. Does no I/O."""
    keywords = dict(options)
    token_ttl, replicas = keywords.pop("token_ttl", TOKEN_TTL), keywords.pop("replicas", 0)
    own = {name: keywords.pop(f"sentinel_{name}", None) for name in ("username", "password")}
    if isinstance(target, SentinelTarget):
        node = settings.from_url(target.url, keywords)
        watched = Watched(target.master, replace(node, master_only=True))
        sentinels = [_ways(node, host, port, own) for host, port in target.sentinels]
    else:
        watched, sentinels = _from_client(target)
    return SentinelEngine(watched, sentinels, token_ttl, replicas)


def _ways(node: Settings, host: str, port: int, own: Mapping[str, str | None]) -> Sentinel:
    """How to connect to one sentinel: as its own user if there is one. Else without a user and, if it asks for
    authentication, as the user of the data nodes: a password is not shown to a server that does not ask for it."""
    common = {name: value for name, value in node.keywords.items() if name not in _NOT_FOR_SENTINELS}
    shared = {name: value for name, value in node.keywords.items() if name in _CREDENTIALS}
    given = {name: value for name, value in own.items() if value}
    users: list[dict[str, Any]] = [given] if given else [{}, shared] if shared else [{}]
    return tuple(_as_sentinel(replace(node, keywords=common | user).at(host, port)) for user in users)


def _from_client(client: Any) -> tuple[Watched, list[Sentinel]]:
    """What a client of ``Sentinel.master_for`` knows. Its pool, its sentinels and their connections are not touched."""
    pool = client.connection_pool
    if not pool.is_master:
        raise UsageError("locks live on the master, and this client is for replicas; make it by Sentinel.master_for")
    manager = pool.sentinel_manager
    by_tls = issubclass(pool.connection_class, (blocking_connections.SSLConnection, asyncio_connections.SSLConnection))
    kind = blocking_connections.SSLConnection if by_tls else blocking_connections.Connection
    node = settings.from_keywords(kind, pool.connection_kwargs)
    sentinels: list[Sentinel] = [(_as_sentinel(settings.from_client(each)),) for each in manager.sentinels]
    if not sentinels:
        raise UsageError("this client's Sentinel knows no sentinels; give it their addresses")
    # A private attribute of redis-py. It is needed: where it is set, the master is reachable at no other address.
    host = getattr(manager, "_force_master_ip", None)
    return Watched(pool.service_name, replace(node, master_only=True), host, manager.min_other_sentinels), sentinels


def _as_sentinel(server: Settings) -> Settings:
    """``server``, named as a sentinel in errors."""
    _, _, place = server.address.partition("://")
    return replace(server, address=_NAMED + place.rpartition("/")[0])
