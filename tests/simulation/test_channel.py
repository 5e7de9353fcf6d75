"""The simulated channel behaves as the port requires: timeouts, cuts, reloads, pushes, duplicates."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from holdfast.engines.base import ALL_NAMES, RequestFailed, Suspects
from holdfast.engines.redis.dialect.requests import Call
from holdfast.engines.redis.scripts import Script
from holdfast.errors import EngineRefused
from tests.simulation.client.channel import SimChannel
from tests.simulation.redis_model.server import RedisModel
from tests.simulation.world.faults import FaultPlan, Faults
from tests.simulation.world.network import Network
from tests.simulation.world.runtime import Process, SimulatedRuntime, Simulator

INCR = Script("incr", "return redis.call('INCR', KEYS[1])")
LOOK = Script("look", "return redis.call('EXISTS', KEYS[1])")


class Net:
    """A simulator, a server, and one process with a channel to it."""

    def __init__(self, plan: FaultPlan, *, multiplexed: bool = True, tracking: bool = True) -> None:
        self.simulator = Simulator(7)
        self.model = RedisModel(lambda: 1_800_000_000_000_000 + int(self.simulator.time * 1e6))
        self.faults = Faults(plan, random.Random(7))
        self.network = Network(self.simulator, self.model, self.faults, ttl=3.0)
        self.process: Process = self.simulator.process("p", offset=500.0)
        self.runtime = SimulatedRuntime(self.process)
        self.channel = SimChannel(self.runtime, self.network, multiplexed=multiplexed, tracking=tracking)

    def run(self, main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Runs ``main`` to its end. Returns its result or raises its exception."""
        outcome: list[Any] = []

        async def caught() -> None:
            try:
                outcome.append(await main())
            except Exception as error:
                outcome.append(error)
            self.simulator.stop()

        self.process.spawn(caught(), "main")
        self.simulator.run(self.simulator.time + 100.0)
        return outcome[0]

    def counter(self) -> bytes | None:
        value: bytes | None = self.model.keys.peek(b"n")
        return value


@pytest.fixture(params=[True, False], ids=["multiplexed", "pooled"])
def make(request: pytest.FixtureRequest) -> Iterator[Callable[..., Net]]:
    nets: list[Net] = []

    def net(**rates: float) -> Net:
        nets.append(Net(FaultPlan(**rates), multiplexed=request.param))
        return nets[-1]

    yield net
    for each in nets:
        each.simulator.close()


def test_unknown_script_is_loaded_and_run_once(make: Callable[..., Net]) -> None:
    net = make()
    assert net.run(lambda: net.channel.run(Call(INCR, ["n"], []), 1.0)) == 1
    net.model.forget_scripts()
    assert net.run(lambda: net.channel.run(Call(INCR, ["n"], []), 1.0)) == 2


@pytest.mark.parametrize("fault, counted", [("lose_request", None), ("lose_reply", b"1"), ("repeat_late", b"2")])
def test_request_without_an_answer_has_an_unknown_outcome_after_the_timeout(
    make: Callable[..., Net], fault: str, counted: bytes | None
) -> None:
    net = make()
    net.run(lambda: net.channel.run(Call(LOOK, ["n"], []), 1.0))
    net.model._load(INCR.source.encode())
    net.faults.plan = FaultPlan(**{fault: 1.0})
    before = net.simulator.time
    failed = net.run(lambda: net.channel.run(Call(INCR, ["n"], []), 0.5))
    assert isinstance(failed, RequestFailed)
    assert failed.may_have_happened
    assert net.simulator.time == pytest.approx(before + 0.5)
    net.simulator.run(before + 20.0)  # late messages have arrived
    assert net.counter() == counted
    # The connection is not reused: the next request gets its own answer.
    net.faults.plan = FaultPlan()
    assert net.run(lambda: net.channel.command(["PING"], 0.5)) == b"PONG"


def test_repeated_request_runs_twice_and_is_answered_once(make: Callable[..., Net]) -> None:
    net = make()
    net.run(lambda: net.channel.run(Call(INCR, ["n"], []), 1.0))
    net.faults.plan = FaultPlan(repeat=1.0)
    assert net.run(lambda: net.channel.run(Call(INCR, ["n"], []), 1.0)) == 2
    assert net.counter() == b"3"


def test_cut_connection_fails_requests_under_way(make: Callable[..., Net]) -> None:
    net = make()
    net.run(lambda: net.channel.run(Call(LOOK, ["n"], []), 1.0))
    net.faults.plan = FaultPlan(stall=1.0)
    began = net.simulator.time
    net.simulator.call_later(0.01, lambda: net.network.cut(net.process))
    failed = net.run(lambda: net.channel.run(Call(LOOK, ["n"], []), 60.0))
    assert isinstance(failed, RequestFailed)
    assert failed.may_have_happened
    assert net.simulator.time == pytest.approx(began + 0.01)


def test_request_to_a_server_that_is_down_did_not_happen(make: Callable[..., Net]) -> None:
    net = make()
    net.network.restart_server(5.0)
    failed = net.run(lambda: net.channel.run(Call(INCR, ["n"], []), 1.0))
    assert isinstance(failed, RequestFailed)
    assert not failed.may_have_happened


def test_error_reply_raises_the_error_of_the_engine(make: Callable[..., Net]) -> None:
    net = make()
    net.run(lambda: net.channel.command(["HSET", "n", "f", "v"], 1.0))
    refused = net.run(lambda: net.channel.run(Call(INCR, ["n"], []), 1.0))
    assert isinstance(refused, EngineRefused)


@pytest.mark.parametrize("tracking", [True, False], ids=["tracking", "channel"])
def test_watch_reads_after_arming_and_wakes_by_push_or_at_its_deadline(tracking: bool) -> None:
    net = Net(FaultPlan(), tracking=tracking)

    async def main() -> tuple[int, bool, float, bool]:
        watch = net.channel.watch()
        left = await watch.arm("lock", "speaks", 1.0)
        pushed = await watch.pushed(net.runtime.now() + 30.0)
        when = net.simulator.time
        again = await watch.pushed(net.runtime.now() + 1.0) if await watch.arm("lock", "speaks", 1.0) == -2 else True
        watch.close()
        return left, pushed, when, again

    net.run(lambda: net.channel.command(["SET", "lock", "x", "PX", 20_000], 1.0))
    began = net.simulator.time

    def release() -> None:
        net.model.delete(b"lock")
        net.model._publish(b"speaks", b"0")
        net.model.drain()

    net.simulator.call_later(3.0, release)
    left, pushed, when, again = net.run(main)
    assert 0 < left <= 20_000
    assert pushed
    assert when == pytest.approx(began + 3.0, abs=0.01)
    assert not again  # one push, one wake-up
    assert not net.network.watches
    net.simulator.close()


def test_hints_name_only_keys_that_were_read() -> None:
    net = Net(FaultPlan())
    hints: list[Suspects] = []
    wakeup = net.runtime.wakeup()

    async def main() -> None:
        await net.channel.run_tracked([Call(LOOK, ["mine"], [], ["mine"])], 0, 1.0)
        hints.extend([await net.channel.wait_for_hints(net.runtime.now() + 5.0, wakeup) for _ in range(3)])

    def change(key: bytes) -> None:
        net.model.keys.replace(key, b"x", None)
        net.model.drain()

    def flush() -> None:
        net.model.flush()
        net.model.drain()

    net.simulator.call_later(1.0, lambda: change(b"other"))
    net.simulator.call_later(2.0, lambda: change(b"mine"))
    net.simulator.call_later(3.0, flush)
    net.run(main)
    assert hints == [["mine"], ALL_NAMES, []]
    net.simulator.close()


def test_resumed_process_gets_the_answer_that_arrived_meanwhile(make: Callable[..., Net]) -> None:
    net = make()
    net.run(lambda: net.channel.run(Call(INCR, ["n"], []), 1.0))
    began = net.simulator.time
    net.simulator.call_later(0.00005, net.process.pause)
    net.simulator.call_later(50.0, net.process.resume)
    assert net.run(lambda: net.channel.run(Call(INCR, ["n"], []), 1.0)) == 2
    assert net.simulator.time == began + 50.0
