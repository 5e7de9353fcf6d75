"""The engine of the simulation: the shipped Redis session on the simulated channel."""

from __future__ import annotations

from holdfast._config.options import DEFAULT_TOKEN_TTL
from holdfast._runtime.base import Runtime
from holdfast.engines.base import Guarantees, Kind
from holdfast.engines.redis.keeper import RedisKeeper
from holdfast.engines.redis.session import RedisSession
from tests.simulation.client.channel import SimChannel
from tests.simulation.world.network import Network
from tests.simulation.world.runtime import SimulatedRuntime


class SimEngine:
    """The counterpart of the engine in ``holdfast.engines.redis``."""

    scheme = "simulated"
    kinds = frozenset({Kind.LOCK})
    reserves_tokens = True
    strict_order = False
    replicates = False
    early_watch = True
    guarantees = Guarantees(
        cross_process=True,
        cross_host=True,
        fair=True,
        fencing=True,
        survives_restart=False,
        survives_failover=False,
        needs_clocks="the rates of the clients' and the server's clocks",
        loss_bound="none inside the model",
    )

    def __init__(self, network: Network, *, multiplexed: bool, tracking: bool) -> None:
        self._network = network
        self._multiplexed = multiplexed
        self._tracking = tracking

    def validate_name(self, name: str) -> None:
        pass

    def session(self, runtime: Runtime) -> RedisSession:
        return RedisSession(self._channel(runtime), runtime, DEFAULT_TOKEN_TTL)

    def keeper(self, runtime: Runtime) -> RedisKeeper:
        return RedisKeeper(self._channel(runtime), DEFAULT_TOKEN_TTL)

    def _channel(self, runtime: Runtime) -> SimChannel:
        assert isinstance(runtime, SimulatedRuntime)
        return SimChannel(runtime, self._network, multiplexed=self._multiplexed, tracking=self._tracking)

    def after_fork_in_child(self) -> None:
        raise NotImplementedError("simulated processes do not fork")

    def __repr__(self) -> str:
        return "simulated Redis"
