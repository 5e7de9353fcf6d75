"""One simulated world, made from a seed: server, network, processes, users, faults; and the judgement at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast._core.core import Core
from holdfast._core.policy import Policy
from holdfast._runtime.simulated import Process, SimulatedRuntime, Simulator
from holdfast.options import ClientOptions
from holdfast.testing.simulation.beliefs import Beliefs
from holdfast.testing.simulation.engine import SimEngine
from holdfast.testing.simulation.engine_view import EngineView
from holdfast.testing.simulation.faults import Faults, draw_plan
from holdfast.testing.simulation.history import History, Violation
from holdfast.testing.simulation.nemesis import Nemesis
from holdfast.testing.simulation.network import Network
from holdfast.testing.simulation.orphans import Orphans
from holdfast.testing.simulation.register import Register
from holdfast.testing.simulation.server import RedisModel
from holdfast.testing.simulation.workload import Shared, User

_WALL_CLOCK: Final = 1_800_000_000_000_000  # µs: the server's clock looks like wall time
_FAULT_PHASE: Final = (4.0, 12.0)
#: The longest sleep of a waiter whose wake-up was lost, and what timers, retries and messages may add.
_POLL_CAP: Final = 5.0
_SLACK: Final = 2.0
_HORIZON: Final = 1000.0


@dataclass
class Report:
    """What one run was about, for the statistics."""

    seconds: float
    grants: int
    additions: int
    faults: dict[str, int]


class World:
    """Everything of one run."""

    def __init__(self, seed: int) -> None:
        self.simulator = simulator = Simulator(seed)
        dice = self.dice = simulator.random
        self.plan = draw_plan(dice)
        self.ttl = round(dice.uniform(1.0, 5.0), 1)
        self.names = ["a", "b"][: dice.choice((1, 1, 2))]
        self.history = History()
        self.faults = Faults(self.plan, dice)
        self.beliefs = Beliefs(self.faults, self.ttl, self.ttl + _POLL_CAP + _SLACK)
        server_rate = self._clock_rate()
        self.model = RedisModel(lambda: _WALL_CLOCK + int(simulator.time * server_rate * 1e6))
        self.network = Network(simulator, self.model, self.faults, self.ttl)
        self.view = EngineView(self.model, self.names)
        self.orphans = Orphans(self.beliefs, self.view, self.faults)
        self.network.before_execution = self.view.before
        self.network.after_execution = self._executed
        self.register = self.make_register()
        self.cores: dict[Process, Core] = {}
        self.shared = Shared(self.beliefs, self.faults, self.history, self.register)
        self._users: list[Any] = []
        self._populate()

    def make_register(self) -> Register:
        return Register(self.network)

    def _clock_rate(self) -> float:
        """As wrong as the plan allows, one way or the other, or anywhere in between."""
        return 1.0 + self.dice.choice((-0.5, 0.5, self.dice.uniform(-0.5, 0.5))) * self.plan.clock_rate

    def _options(self) -> ClientOptions:
        dice = self.dice
        return ClientOptions(
            ttl=self.ttl, request_timeout=dice.choice((1.0, 1.0, 0.3)), unavailable_after=dice.choice((3.0, 1.0, 0.4))
        )

    def _policies(self, options: ClientOptions) -> list[Policy]:
        """One for each name; processes need not agree about them."""
        dice = self.dice
        ttl = self.ttl * dice.choice((1.0, 1.0, 0.5))
        return [
            Policy(
                name=name,
                key=name,
                ttl=ttl,
                request_timeout=options.request_timeout,
                renew=dice.random() < 0.6,
                fair=dice.random() < 0.3,
                reentrant=dice.random() < 0.8,
                max_hold=dice.uniform(0.5, 2 * ttl) if dice.random() < 0.2 else None,
            )
            for name in self.names
        ]

    def _populate(self) -> None:
        dice = self.dice
        engine = SimEngine(self.network, multiplexed=dice.random() < 0.5, tracking=dice.random() < 0.8)
        for number in range(dice.randint(2, 4)):
            process = self.simulator.process(f"p{number}", offset=dice.uniform(0.0, 1e6), rate=self._clock_rate())
            runtime = SimulatedRuntime(process)
            options = self._options()
            core = self.cores[process] = Core(engine, options, runtime, runtime)
            self.orphans.listen(core, process)
            policies = self._policies(options)
            for place in range(dice.randint(1, 3)):
                user = User(self.shared, core, process, f"u{place}", policies)
                self._users.append(process.spawn(user.run(), f"u{place}"))

    def _executed(self, words: Sequence[bytes], reply: Any) -> None:
        if words[0] not in (b"EVALSHA", b"EVAL"):
            return
        script = self.network.script_names[words[1]]
        self.history.add(self.simulator.time, "server", script, words, reply)
        change = self.view.after(script, words, reply)
        for owner in change.granted:
            self.beliefs.robbed.pop(owner, None)  # granted again after it had been robbed
        for owner in change.robbed:
            self.beliefs.robbed[owner] = self.simulator.time

    # -- running -------------------------------------------------------------------------------------------------------

    def run(self) -> Report:
        """Faults, then quiet, then the end; raises Violation (or what broke)."""
        simulator = self.simulator
        nemesis = Nemesis(
            self.network,
            self.faults,
            self.beliefs,
            self.view,
            self.orphans,
            self.history,
            list(self.cores),
            self.names,
            self.ttl,
        )
        simulator.after_step = lambda: self.beliefs.look(simulator.time)
        nemesis.start()
        simulator.run(self.dice.uniform(*_FAULT_PHASE))
        nemesis.heal()
        self._let_users_finish()
        # What was never confirmed ends by itself within a ttl.
        simulator.run(max(simulator.time, self.faults.last_effect) + self.ttl + _SLACK)
        self._judge()
        self._close_clients()
        return Report(
            simulator.time,
            self.beliefs.grants,
            sum(map(len, self.shared.acknowledged.values())),
            dict(self.faults.counts),
        )

    def _let_users_finish(self) -> None:
        simulator = self.simulator
        while self._working():
            simulator.run(simulator.time + 1.0)
            if simulator.time > _HORIZON:
                raise Violation("I6", "the users do not come to an end: " + "; ".join(self._working()))

    def _working(self) -> list[str]:
        return [task.where() for task in self._users if not task.process.dead and not task.done.is_set()]

    # -- judging -------------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        for name, numbers in self.shared.acknowledged.items():
            if missing := numbers - self.register.values.get(name, frozenset()):
                raise Violation("I3", f"register {name}: acknowledged additions {sorted(missing)} are not there")
        for name in self.names:
            if (owner := self.view.owner(name)) is not None:
                raise Violation("I8", f"{name} is still held by …{owner[-4:]}, a ttl after everybody had finished")
        for key in self.model.keys:
            if self.model.keys.expiry(key) is None:
                raise Violation("I9", f"key {key.decode()} would stay for ever")
        for process, core in self.cores.items():
            if not process.dead and core.live:
                raise Violation("I9", f"{process.name} still keeps holds after everybody had finished")
        if self.network.watches:
            raise Violation("I9", f"{len(self.network.watches)} watches were never closed")

    def _close_clients(self) -> None:
        """I9, no leaks: a closed client leaves no task and no connection behind."""
        for process, core in self.cores.items():
            process.spawn(core.close(), "close")
        self.simulator.run(self.simulator.time + _SLACK)
        for process in self.cores:
            if not process.dead and process.tasks:
                raise Violation("I9", "after close: " + "; ".join(task.where() for task in process.tasks))
        if self.network.links:
            raise Violation("I9", f"{len(self.network.links)} connections are open after close")

    def close(self) -> None:
        """Put everything away, without any of it acting any more."""
        for lease in self.shared.leases:
            lease.disown()
        self.simulator.close()
