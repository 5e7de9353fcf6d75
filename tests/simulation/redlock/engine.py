"""The engine of the Redlock simulation: the shipped session on a simulated group of servers."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast._config.options import DEFAULT_TOKEN_TTL
from holdfast._runtime.base import Runtime
from holdfast.engines.base import Guarantees, Kind
from holdfast.engines.redis.redlock.keeper import RedlockKeeper
from holdfast.engines.redis.redlock.session import RedlockSession
from tests.simulation.client.channel import SimChannel
from tests.simulation.redlock.server_group import SimServerGroup
from tests.simulation.world.node import Node
from tests.simulation.world.runtime import SimulatedRuntime


class SimRedlockEngine:
    """The counterpart of the engine in ``holdfast.engines.redis.redlock``."""

    scheme = "simulated-redlock"
    kinds = frozenset({Kind.LOCK})
    reserves_tokens = True
    strict_order = False
    replicates = False
    early_watch = False
    guarantees = Guarantees(
        cross_process=True,
        cross_host=True,
        fair=False,
        fencing=True,
        survives_restart=False,
        survives_failover=True,
        needs_clocks="the rates of the clients' and the servers' clocks",
        loss_bound="none inside the model",
    )

    def __init__(self, nodes: Sequence[Node], *, multiplexed: bool, tracking: bool) -> None:
        self._nodes = nodes
        self._multiplexed = multiplexed
        self._tracking = tracking

    def validate_name(self, name: str) -> None:
        pass

    def session(self, runtime: Runtime) -> RedlockSession[SimChannel]:
        assert isinstance(runtime, SimulatedRuntime)
        group, channels, labels = self._servers(runtime)
        return RedlockSession(group, channels, labels, runtime, DEFAULT_TOKEN_TTL, runtime.now)

    def keeper(self, runtime: Runtime) -> RedlockKeeper[SimChannel]:
        assert isinstance(runtime, SimulatedRuntime)
        group, channels, labels = self._servers(runtime)
        return RedlockKeeper(group, channels, labels, runtime, DEFAULT_TOKEN_TTL)

    def _servers(self, runtime: SimulatedRuntime) -> tuple[SimServerGroup, list[SimChannel], list[str]]:
        channels = [
            SimChannel(runtime, node.network, multiplexed=self._multiplexed, tracking=self._tracking)
            for node in self._nodes
        ]
        return SimServerGroup(runtime.process), channels, [node.name for node in self._nodes]

    def after_fork_in_child(self) -> None:
        raise NotImplementedError("simulated processes do not fork")

    def __repr__(self) -> str:
        return f"simulated Redlock on {len(self._nodes)} servers"
