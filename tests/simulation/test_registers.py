"""The contract of registers, by the shipped scripts in the model of Redis."""

from __future__ import annotations

import random

import pytest

from tests.simulation.client.engine import SimEngine
from tests.simulation.redis_model.server import RedisModel
from tests.simulation.world.faults import FaultPlan, Faults
from tests.simulation.world.network import Network
from tests.simulation.world.runtime import SimulatedRuntime, Simulator
from tests.support.register_contract import CASES, Case, check_on, name_of


@pytest.mark.parametrize("tracking", [True, False], ids=["tracking", "channel"])
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_contract(case: Case, tracking: bool) -> None:
    simulator = Simulator(7)
    model = RedisModel(lambda: 1_800_000_000_000_000 + int(simulator.time * 1e6))
    network = Network(simulator, model, Faults(FaultPlan(), random.Random(7)), ttl=3.0)
    process = simulator.process("p", offset=500.0)
    ended = list[Exception | None]()

    async def main() -> None:
        try:
            engine = SimEngine(network, multiplexed=True, tracking=tracking)
            await check_on(SimulatedRuntime(process), case, engine)
            ended.append(None)
        except Exception as error:
            ended.append(error)
        simulator.stop()

    process.spawn(main(), "main")
    try:
        simulator.run(1000.0)
    finally:
        simulator.close()
    assert ended, "it did not end"
    if ended[0] is not None:
        raise ended[0]
