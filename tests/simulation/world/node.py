"""One server of a world: its clock and data, the network to it, and the checks of its behaviour."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tests.simulation.checkers.engine_view import EngineView, View
from tests.simulation.redis_model.server import RedisModel
from tests.simulation.world.faults import Faults
from tests.simulation.world.network import Network
from tests.simulation.world.runtime import Simulator

_WALL_CLOCK: Final = 1_800_000_000_000_000  # µs: the server's clock looks like wall time


class Node:
    """A server. Its clock has its own rate and may be ``ahead`` of the others by so many seconds."""

    def __init__(
        self,
        simulator: Simulator,
        name: str,
        faults: Faults,
        names: Sequence[str],
        ttl: float,
        *,
        rate: float,
        ahead: float = 0.0,
        client_timeout: float = 1.0,
        view: Callable[[RedisModel, Sequence[str]], View] = EngineView,
    ) -> None:
        self.name = name
        self.faults = faults
        self.ahead = ahead
        self._simulator = simulator
        self._rate = rate
        self.model = RedisModel(self._microseconds)
        self.network = Network(simulator, self.model, faults, ttl, client_timeout=client_timeout)
        self.view = view(self.model, names)
        self.network.before_execution = self.view.before

    def _microseconds(self) -> int:
        return _WALL_CLOCK + int((self._simulator.time * self._rate + self.ahead) * 1e6)
