"""The simulated server group behaves as the port requires: parallel requests, failures as answers, no leaks."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from holdfast.engines.base import ALL_NAMES, RequestFailed
from holdfast.engines.redis.dialect.requests import Call
from holdfast.engines.redis.scripts import Script
from holdfast.errors import EngineRefused
from tests.simulation.client.channel import SimChannel
from tests.simulation.redlock.server_group import SimServerGroup
from tests.simulation.world.faults import FaultPlan, Faults
from tests.simulation.world.node import Node
from tests.simulation.world.runtime import SimulatedRuntime, Simulator

INCR = Call(Script("incr", "return redis.call('INCR', KEYS[1])"), ["n"], [])
LOOK = Call(Script("look", "return redis.call('EXISTS', KEYS[1])"), ["n"], [], watched=["n"])


class Servers:
    """Three servers, and a process that sends requests to them."""

    def __init__(self, *, multiplexed: bool) -> None:
        self.multiplexed = multiplexed
        self.simulator = Simulator(7)
        faults = Faults(FaultPlan(), self.simulator.random)
        self.nodes = [
            Node(self.simulator, f"s{number}", faults.part(FaultPlan()), [], 3.0, rate=1.0) for number in range(3)
        ]
        self.process = self.simulator.process("p", offset=500.0)
        self.runtime = SimulatedRuntime(self.process)
        self.group = SimServerGroup(self.process)
        self.channels = [
            SimChannel(self.runtime, node.network, multiplexed=multiplexed, tracking=True) for node in self.nodes
        ]

    def ask(self, call: Call, timeout: float = 1.0) -> Any:
        return self.run(lambda: self.group.ask(self.channels, call, timeout))

    def run(self, main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        outcome: list[Any] = []

        async def caught() -> None:
            outcome.append(await main())
            self.simulator.stop()

        self.process.spawn(caught(), "main")
        self.simulator.run(self.simulator.time + 100.0)
        return outcome[0]


@pytest.fixture(params=[True, False], ids=["multiplexed", "pooled"])
def servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    servers = Servers(multiplexed=request.param)
    yield servers
    servers.simulator.close()


def test_servers_are_asked_in_parallel_also_without_connections_and_scripts(servers: Servers) -> None:
    assert servers.ask(INCR) == [1, 1, 1]
    for node in servers.nodes:
        node.faults.plan = FaultPlan(slow=1.0)
    began = servers.simulator.time
    assert servers.ask(INCR) == [2, 2, 2]
    servers.nodes[1].model.forget_scripts()
    assert servers.ask(INCR, timeout=5.0) == [3, 3, 3]
    assert servers.simulator.time - began < 3 * 0.7 + 0.1  # the time of the slowest, with one reload; not the sum


def test_failure_of_one_server_is_returned_among_the_answers(servers: Servers) -> None:
    servers.ask(INCR)
    servers.nodes[0].network.restart_server(5.0)
    servers.nodes[1].faults.plan = FaultPlan(lose_reply=1.0)
    servers.run(lambda: servers.channels[2].command(["DEL", "n"], 1.0))
    servers.run(lambda: servers.channels[2].command(["HSET", "n", "f", "v"], 1.0))
    began = servers.simulator.time
    down, silent, refused = servers.ask(INCR, timeout=0.5)
    assert isinstance(down, RequestFailed)
    assert not down.may_have_happened
    assert isinstance(silent, RequestFailed)
    assert silent.may_have_happened
    assert isinstance(refused, EngineRefused)
    assert servers.simulator.time - began == pytest.approx(0.5)


def test_cancelled_request_leaves_no_task_and_no_connection_with_an_unread_answer(servers: Servers) -> None:
    servers.ask(INCR)
    for node in servers.nodes:
        node.faults.plan = FaultPlan(slow=1.0)
    asking = servers.process.spawn(servers.group.ask(servers.channels, INCR, 1.0), "asking")
    servers.simulator.call_later(0.005, asking.cancel)
    servers.simulator.run(servers.simulator.time + 2.0)
    assert asking.done.is_set()
    assert not servers.process.tasks
    # A shared connection matches answers by their order; one from a pool would give the answer to its next user.
    assert [len(node.network.links) for node in servers.nodes] == [int(servers.multiplexed)] * 3


def test_hints_come_from_every_server(servers: Servers) -> None:
    wakeup = servers.runtime.wakeup()

    async def main() -> list[Any]:
        await servers.group.ask_each([(channel, [LOOK]) for channel in servers.channels], 0, 1.0)
        return [
            await servers.group.wait_for_hints(servers.channels, servers.runtime.now() + 5.0, wakeup) for _ in range(3)
        ]

    def change() -> None:
        model = servers.nodes[1].model
        model.keys.replace(b"n", b"x", None)
        model.drain()

    servers.simulator.call_later(1.0, change)
    servers.simulator.call_later(2.0, lambda: servers.nodes[2].network.cut(servers.process))
    assert servers.run(main) == [["n"], ALL_NAMES, []]
