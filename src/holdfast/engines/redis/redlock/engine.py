"""The Redlock engine: settings of N servers, guarantees, sessions and keepers."""

from __future__ import annotations

import dataclasses
import warnings
import weakref
from collections.abc import Sequence
from typing import Any, Final

from holdfast._runtime.base import Runtime
from holdfast._runtime.blocking import BlockingRuntime
from holdfast.engines.base import Guarantees, Kind, Session
from holdfast.engines.redis.attempt import RedlockAttempt
from holdfast.engines.redis.connections import settings
from holdfast.engines.redis.connections.aio import AsyncioChannel
from holdfast.engines.redis.connections.aio_group import AsyncioGroup
from holdfast.engines.redis.connections.blocking import BlockingChannel
from holdfast.engines.redis.connections.blocking_group import BlockingGroup, BlockingKeeperGroup
from holdfast.engines.redis.connections.blocking_keeper import BlockingKeeperChannel
from holdfast.engines.redis.dialect import keys
from holdfast.engines.redis.engine import TOKEN_TTL
from holdfast.engines.redis.redlock.keeper import RedlockKeeper
from holdfast.engines.redis.redlock.session import RedlockSession

_GUARANTEES: Final = Guarantees(
    cross_process=True,
    cross_host=True,
    fair=False,
    fencing=True,
    survives_restart=False,
    survives_failover=True,
    needs_clocks="no server's may step forward, and a server that restarts without its data must "
    "stay away for longer than the ttl and the difference of the servers' clocks",
    loss_bound="the ttl; until then if one server under a grant on a bare majority loses it (clock step, restart "
    "without disk, eviction)",
)


class RedlockEngine:
    """See :class:`holdfast.engines.base.Engine`."""

    scheme = "redlock"
    guarantees = _GUARANTEES
    kinds = frozenset({Kind.LOCK})
    reserves_tokens = True
    strict_order = False
    replicates = False
    early_watch = False

    def __init__(self, servers: Sequence[settings.Settings], token_ttl: float | None) -> None:
        self._servers = servers
        self._token_ttl = token_ttl
        self._channels: weakref.WeakSet[BlockingChannel | AsyncioChannel] = weakref.WeakSet()

    def why_not(self, kind: Kind) -> str:
        """Why a name cannot be of this kind here."""
        if kind is Kind.SEMAPHORE:
            return "each server would count its own permits, and together they could grant half as many again"
        if kind is Kind.RWLOCK:
            return "there is no queue that all servers share, so readers could keep a writer waiting for ever"
        return "servers that know nothing of each other have no common state; use one server, Sentinel or a cluster"

    def validate_name(self, name: str) -> None:
        keys.validate(name)

    def session(self, runtime: Runtime) -> Session[RedlockAttempt]:
        labels = [server.address for server in self._servers]
        if isinstance(runtime, BlockingRuntime):
            blocking = [BlockingChannel(server) for server in self._servers]
            self._channels.update(blocking)
            return RedlockSession(BlockingGroup(), blocking, labels, runtime, self._token_ttl)
        awaited = [AsyncioChannel(server) for server in self._servers]
        self._channels.update(awaited)
        return RedlockSession(AsyncioGroup(), awaited, labels, runtime, self._token_ttl)

    def keeper(self, runtime: Runtime) -> RedlockKeeper[BlockingKeeperChannel]:
        labels = [server.address for server in self._servers]
        channels = [BlockingKeeperChannel(server, self._channels) for server in self._servers]
        self._channels.update(channels)
        return RedlockKeeper(BlockingKeeperGroup(), channels, labels, runtime, self._token_ttl)

    def after_fork_in_child(self) -> None:
        channels, self._channels = list(self._channels), weakref.WeakSet()
        for channel in channels:
            channel.after_fork_in_child()

    def __repr__(self) -> str:
        return f"<redlock engine {', '.join(server.address for server in self._servers)}>"


def connect(target: Sequence[str], options: dict[str, Any]) -> RedlockEngine:
    """The engine for the URLs of N independent servers. Does no I/O."""
    keywords = dict(options)
    token_ttl, _ = keywords.pop("token_ttl", TOKEN_TTL), keywords.pop("replicas", 0)
    if len(target) == 1:
        warnings.warn("redlock with one server is no safer than redis://", RuntimeWarning, stacklevel=5)
    elif len(target) % 2 == 0:
        warnings.warn(
            f"redlock with {len(target)} servers survives the loss of no more of them than with {len(target) - 1}: "
            "use an odd number",
            RuntimeWarning,
            stacklevel=5,
        )
    # A replica has what its master has. If it were counted, one server would have two votes.
    servers = [dataclasses.replace(settings.from_url(url, keywords), master_only=True) for url in target]
    return RedlockEngine(servers, token_ttl)
