"""The Redis engine on a single server: settings, guarantees, sessions and keepers."""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any, Final

from holdfast._runtime.base import Runtime
from holdfast._runtime.blocking import BlockingRuntime
from holdfast.engines.base import Guarantees, Kind
from holdfast.engines.redis.connections import settings
from holdfast.engines.redis.connections.aio import AsyncioChannel
from holdfast.engines.redis.connections.blocking import BlockingChannel
from holdfast.engines.redis.connections.blocking_keeper import BlockingKeeperChannel
from holdfast.engines.redis.dialect import keys
from holdfast.engines.redis.keeper import RedisKeeper
from holdfast.engines.redis.session import RedisSession

TOKEN_TTL: Final = 30 * 86400.0
#: What a name can be on one server or in a cluster: all of it is decided at one place.
KINDS: Final = frozenset({Kind.LOCK, Kind.RWLOCK, Kind.SEMAPHORE})

_GUARANTEES: Final = Guarantees(
    cross_process=True,
    cross_host=True,
    fair=True,
    fencing=True,
    survives_restart=False,
    survives_failover=False,
    needs_clocks="the server's must not step forward (leases would end early there), the client's must keep its rate",
    loss_bound="until the push or the next renewal, a third of the ttl, after eviction, FLUSHALL, a restart without "
    "disk or a step of the server's clock; after a manual failover until the old master is out of reach",
    shared=True,
    permits=True,
    registers=True,
    detach=True,
    state_bound="a crash of the server undoes what its disk does not have yet (appendfsync), without a disk all of "
    "it; eviction, FLUSHALL or DEL remove it; a manual failover may undo the last changes",
)


_REPLICA: Final = ": locks are taken there; give its address, or redis+sentinel:// to have it found"
_ISOLATED: Final = (
    "after a failover until the partition heals: an old master that only its client can reach renews for ever"
)
_ACKNOWLEDGED: Final = "the ttl, after a failover: an old master without replicas that acknowledge cannot renew"
_UNDONE: Final = "a failover may undo the last changes, those that the new master had not received"
_REPLICATED: Final = (
    "a failover undoes no change that the replicas had acknowledged, if one of these becomes the new master"
)


def failover_guarantees(replicas: int) -> Guarantees:
    """The guarantees of servers with replicas that may take over."""
    return dataclasses.replace(
        _GUARANTEES,
        loss_bound=f"{_ACKNOWLEDGED if replicas else _ISOLATED}; until the push or the next renewal, a third of the "
        "ttl, after eviction, FLUSHALL or a step of a server's clock",
        state_bound=f"{_REPLICATED if replicas else _UNDONE}; eviction, FLUSHALL or DEL remove it",
    )


class RedisEngine:
    """See :class:`holdfast.engines.base.Engine`."""

    scheme = "redis"
    kinds = KINDS
    reserves_tokens = True
    strict_order = False
    replicates = True
    early_watch = True

    def __init__(self, server: settings.Server, token_ttl: float | None, guarantees: Guarantees = _GUARANTEES) -> None:
        self._server = server
        self._token_ttl = token_ttl
        self.guarantees = guarantees
        self._channels: weakref.WeakSet[BlockingChannel | AsyncioChannel] = weakref.WeakSet()

    def validate_name(self, name: str) -> None:
        keys.validate(name)

    def session(self, runtime: Runtime) -> RedisSession:
        blocking = isinstance(runtime, BlockingRuntime)
        channel = BlockingChannel(self._server) if blocking else AsyncioChannel(self._server)
        self._channels.add(channel)
        return RedisSession(channel, runtime, self._token_ttl)

    def keeper(self, runtime: Runtime) -> RedisKeeper:
        channel = BlockingKeeperChannel(self._server, self._channels)
        self._channels.add(channel)
        return RedisKeeper(channel, self._token_ttl)

    def after_fork_in_child(self) -> None:
        channels, self._channels = list(self._channels), weakref.WeakSet()
        for channel in channels:
            channel.after_fork_in_child()

    def __repr__(self) -> str:
        return f"<redis engine {self._server.address}>"


def connect(target: Any, options: dict[str, Any]) -> RedisEngine:
    """The engine for a redis://, rediss:// or unix:// URL or for a client of redis-py. Does no I/O."""
    keywords = dict(options)
    token_ttl, replicas = keywords.pop("token_ttl", TOKEN_TTL), keywords.pop("replicas", 0)
    server = settings.from_url(target, keywords) if isinstance(target, str) else settings.from_client(target)
    server = dataclasses.replace(server, master_only=True, remedy=_REPLICA)
    # A server whose replicas must acknowledge has some, so one of them may take over.
    return RedisEngine(server, token_ttl, failover_guarantees(replicas) if replicas else _GUARANTEES)
