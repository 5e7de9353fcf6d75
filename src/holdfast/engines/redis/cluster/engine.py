"""The engine of ``redis+cluster://``: settings, guarantees, sessions and keepers."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Final

import redis.asyncio.connection as asyncio_connections
import redis.connection as blocking_connections

from holdfast._runtime.base import Runtime
from holdfast._runtime.blocking import BlockingRuntime
from holdfast.engines.base import Guarantees
from holdfast.engines.redis.cluster.channel import ClusterChannel
from holdfast.engines.redis.cluster.keeper import ClusterKeeper
from holdfast.engines.redis.cluster.keeper_channel import ClusterKeeperChannel
from holdfast.engines.redis.cluster.session import ClusterSession
from holdfast.engines.redis.cluster.slots import Place, Table
from holdfast.engines.redis.connections import settings
from holdfast.engines.redis.connections.aio import AsyncioChannel
from holdfast.engines.redis.connections.blocking import BlockingChannel
from holdfast.engines.redis.connections.blocking_group import BlockingKeeperGroup
from holdfast.engines.redis.connections.blocking_keeper import BlockingKeeperChannel
from holdfast.engines.redis.dialect import keys
from holdfast.engines.redis.dialect.requests import Publish
from holdfast.engines.redis.engine import KINDS, TOKEN_TTL, failover_guarantees

_PUBLISH: Final[dict[str, Publish | None]] = {"auto": None, "on": "SPUBLISH", "off": "PUBLISH", "both": "BOTH"}


class ClusterEngine:
    """See :class:`holdfast.engines.base.Engine`."""

    scheme = "redis+cluster"
    kinds = KINDS
    reserves_tokens = True
    strict_order = False
    replicates = True
    early_watch = True

    def __init__(
        self,
        seeds: Sequence[settings.Settings],
        token_ttl: float | None,
        replicas: int,
        publish: Publish | None,
    ) -> None:
        self._seeds = seeds
        self._token_ttl = token_ttl
        self._publish = publish
        self._table = Table([_place(seed) for seed in seeds])
        self._channels: weakref.WeakSet[BlockingChannel | AsyncioChannel] = weakref.WeakSet()
        self.guarantees: Guarantees = failover_guarantees(replicas)

    def validate_name(self, name: str) -> None:
        keys.validate_for_cluster(name)

    def session(self, runtime: Runtime) -> ClusterSession:
        channel: ClusterChannel[BlockingChannel] | ClusterChannel[AsyncioChannel]
        if isinstance(runtime, BlockingRuntime):
            channel = ClusterChannel(self._open_blocking, self._table, self._publish)
        else:
            channel = ClusterChannel(self._open_asyncio, self._table, self._publish)
        return ClusterSession(channel, runtime, self._token_ttl)

    def keeper(self, runtime: Runtime) -> ClusterKeeper:
        channel = ClusterKeeperChannel(BlockingKeeperGroup(), self._open_keeper, self._table, self._publish)
        return ClusterKeeper(channel, self._token_ttl)

    def _open_blocking(self, place: Place) -> BlockingChannel:
        channel = BlockingChannel(self._seeds[0].at(*place))
        self._channels.add(channel)
        return channel

    def _open_keeper(self, place: Place) -> BlockingKeeperChannel:
        channel = BlockingKeeperChannel(self._seeds[0].at(*place), self._channels)
        self._channels.add(channel)
        return channel

    def _open_asyncio(self, place: Place) -> AsyncioChannel:
        channel = AsyncioChannel(self._seeds[0].at(*place))
        self._channels.add(channel)
        return channel

    def after_fork_in_child(self) -> None:
        channels, self._channels = list(self._channels), weakref.WeakSet()
        for channel in channels:
            channel.after_fork_in_child()

    def __repr__(self) -> str:
        scheme = self._seeds[0].address.partition("://")[0]
        hosts = ",".join(f"{place.host}:{place.port}" for place in map(_place, self._seeds))
        return f"<redis engine {scheme}+cluster://{hosts}>"


def connect(target: Any, options: dict[str, Any]) -> ClusterEngine:
    """The engine for the URLs of some of a cluster's servers, or for a ``RedisCluster`` of redis-py, sync or async,
    whose own connections are not touched. Does no I/O."""
    keywords = dict(options)
    token_ttl, replicas = keywords.pop("token_ttl", TOKEN_TTL), keywords.pop("replicas", 0)
    publish = _PUBLISH[keywords.pop("sharded_pubsub", "auto")]
    if isinstance(target, tuple):
        seeds = [settings.from_url(url, keywords) for url in target]
    else:
        seeds = _from_client(target)
    return ClusterEngine(seeds, token_ttl, replicas, publish)


def _from_client(client: Any) -> list[settings.Settings]:
    """The settings of a RedisCluster, without its own function for new connections: that asks for stale reads."""
    found = {**client.nodes_manager.connection_kwargs}
    found["redis_connect_func"] = getattr(client, "user_on_connect_func", None)
    kind = found.pop("connection_class", None)
    by_tls = bool(found.pop("ssl", False)) or (
        kind is not None and issubclass(kind, blocking_connections.SSLConnection | asyncio_connections.SSLConnection)
    )
    of_tls = blocking_connections.SSLConnection if by_tls else blocking_connections.Connection
    common = settings.from_keywords(of_tls, found)
    return [common.at(node.host, int(node.port)) for node in client.nodes_manager.startup_nodes.values()]


def _place(server: settings.Settings) -> Place:
    return Place(str(server.keywords.get("host", "localhost")), int(server.keywords.get("port", 6379)))
