"""The engine of ``zookeeper://``: settings, guarantees, and a session for each runtime."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, Final

from kazoo.security import CREATOR_ALL_ACL

from holdfast._runtime.base import Runtime
from holdfast.engines.base import Guarantees, Kind
from holdfast.engines.zookeeper import names
from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.hub import Hub
from holdfast.engines.zookeeper.keeper import ZooKeeperKeeper
from holdfast.engines.zookeeper.session import ZooKeeperSession
from holdfast.engines.zookeeper.target import ZooKeeperTarget

_GUARANTEES: Final = Guarantees(
    cross_process=True,
    cross_host=True,
    fair=True,
    fencing=True,
    survives_restart=True,
    survives_failover=True,
    needs_clocks="the rates of the client's and the leader's clocks",
    loss_bound="none while a majority of the servers keeps its data: leases end before their sessions do",
    shared=True,
    permits=True,
    registers=True,
    state_bound="none while a majority of the servers keeps its data",
)


class ZooKeeperEngine:
    """See :class:`holdfast.engines.base.Engine`."""

    scheme = "zookeeper"
    guarantees = _GUARANTEES
    kinds = frozenset(Kind)
    reserves_tokens = False
    strict_order = True
    replicates = False
    early_watch = False

    def __init__(
        self,
        target: ZooKeeperTarget,
        ttl: float,
        tick: float,
        keywords: dict[str, Any],
        token_ttl: float | None = None,
    ) -> None:
        self._target = target
        self._ttl = ttl
        self._tick = tick
        self._keywords = keywords
        self._token_ttl = token_ttl
        self._opening = threading.RLock()
        self._hubs: weakref.WeakSet[Hub] = weakref.WeakSet()
        self._hub: Hub | None = None

    def validate_name(self, name: str) -> None:
        names.path(self._target.base, name)

    def session(self, runtime: Runtime) -> ZooKeeperSession:
        return ZooKeeperSession(self._open_hub(), runtime, self._target.base, self._open_hub, self._token_ttl)

    def keeper(self, runtime: Runtime) -> ZooKeeperKeeper:
        """It shares the sessions at the servers with the session of the same client."""
        return ZooKeeperKeeper(self._open_hub(), runtime, self._target.base, self._open_hub)

    def _open_hub(self) -> Hub:
        """The hub that all sessions and keepers of this engine share. Not one for each pair of them: an opening
        interrupted between the two would leave the watchdog of the next opening with another hub than its callers."""
        with self._opening:
            if self._hub is None or self._hub.closed:
                self._hub = self.hub()
            return self._hub

    def hub(self) -> Hub:
        """Sessions at the servers, shared by the members of a client. Closed after a fork."""
        hub = Hub(self._connect, self._ttl, self._tick)
        self._hubs.add(hub)
        return hub

    def _connect(
        self, timeout: float, on_change: Callable[[Connection], None], attend: Callable[[Connection], float]
    ) -> Connection:
        return Connection(self._target.connection_string, timeout, self._tick, self._keywords, on_change, attend)

    def after_fork_in_child(self) -> None:
        self._opening = threading.RLock()
        hubs, self._hubs, self._hub = list(self._hubs), weakref.WeakSet(), None
        for hub in hubs:
            hub.after_fork_in_child()

    def __repr__(self) -> str:
        return f"<zookeeper engine {self._target.connection_string}{self._target.base}>"


def connect(target: ZooKeeperTarget, options: dict[str, Any]) -> ZooKeeperEngine:
    """The engine for some of an ensemble's servers. Does no I/O."""
    keywords = dict(options)
    ttl, tick, token_ttl = keywords.pop("ttl"), keywords.pop("tick"), keywords.pop("token_ttl")
    if keywords.pop("acl", None) == "creator":
        keywords["default_acl"] = CREATOR_ALL_ACL
    return ZooKeeperEngine(target, ttl, tick, keywords, token_ttl)
