"""One simulated world, made from a seed: servers, network, processes, users, faults, and the checks at its end."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from holdfast._config.options import ClientOptions
from holdfast._core.core import Core
from holdfast._core.policy import Policy
from holdfast.engines.base import Engine
from tests.simulation.checkers.history import Violation
from tests.simulation.checkers.holder_view import HolderView
from tests.simulation.checkers.majority import Majority
from tests.simulation.checkers.orphans import Orphans
from tests.simulation.checkers.register import Register
from tests.simulation.client.engine import SimEngine
from tests.simulation.world.base import BaseWorld, Report
from tests.simulation.world.faults import ONE_SERVER, FaultPlan, draw_plan
from tests.simulation.world.nemesis import Nemesis
from tests.simulation.world.node import Node
from tests.simulation.world.runtime import Process, SimulatedRuntime, Task
from tests.simulation.world.workload import Shared, User

_FAULT_PHASE: Final = (4.0, 12.0)
#: The longest sleep of a waiter whose wake-up was lost, and the time that timers, retries and messages may add.
_POLL_CAP: Final = 5.0
_SLACK: Final = 2.0
_HORIZON: Final = 1000.0


class World(BaseWorld):
    """The shipped core in several processes, with users that make every kind of call, and one server."""

    restart_takes: tuple[float, float] = (0.0, 2.0)
    restart_is_harmless = False  #: a restart without memory is within the engine's model
    #: A release or withdrawal that meets no fault takes a few round trips.
    grace = 0.5
    processes = (2, 4)  #: how many, at least and at most
    users = (1, 3)  #: of each process, likewise
    lasting_keys: frozenset[bytes] = frozenset()  #: keys of users' data, which never expire
    skipped_for = 0.0  #: how long after a fault a client may skip a server

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        dice = self.dice
        self.ttl = round(dice.uniform(1.0, 5.0), 1)
        self.names = self.draw_names()
        self.holders = self.make_holders()
        self.nodes = self.make_nodes()
        self.majority = Majority([node.view for node in self.nodes])
        self.orphans = Orphans(self.holders, self.nodes, grace=self.grace, skipped_for=self.skipped_for)
        for node in self.nodes:
            node.network.after_execution = partial(self._executed, node)
        self.register = self.make_register()
        self.cores: dict[Process, Core] = {}
        self.shared = Shared(self.holders, self.faults, self.history, self.register)
        self._users: list[Task] = []
        self._populate()

    # -- overridden in other worlds ------------------------------------------------------------------------------------

    def draw_plan(self) -> FaultPlan:
        return draw_plan(self.dice, ONE_SERVER)

    def draw_names(self) -> list[str]:
        return ["a", "b"][: self.dice.choice((1, 1, 2))]

    def make_nodes(self) -> list[Node]:
        faults = self.faults.part(self.faults.plan)
        return [Node(self.simulator, "server", faults, self.names, self.ttl, rate=self.clock_rate())]

    def make_engine(self) -> Engine:
        dice = self.dice
        return SimEngine(self.nodes[0].network, multiplexed=dice.random() < 0.5, tracking=dice.random() < 0.8)

    def make_register(self) -> Register:
        return Register(self.nodes[0].network)

    def make_holders(self) -> HolderView:
        return HolderView(self.faults, self.ttl, self.ttl + _POLL_CAP + _SLACK)

    def make_user(self, core: Core, process: Process, name: str, policies: Sequence[Policy]) -> User:
        return User(self.shared, core, process, name, policies)

    def make_policies(self, options: ClientOptions, engine: Engine) -> list[Policy]:
        """For one process: one policy for each name. Those of two processes may differ."""
        dice = self.dice
        ttl = self.ttl * dice.choice((1.0, 1.0, 0.5))
        return [
            Policy(
                name=name,
                key=name,
                ttl=ttl,
                request_timeout=options.request_timeout,
                renew=dice.random() < 0.6,
                fair=dice.random() < 0.3 and engine.guarantees.fair,
                reentrant=dice.random() < 0.8,
                max_hold=dice.uniform(0.5, 2 * ttl) if dice.random() < 0.2 else None,
            )
            for name in self.names
        ]

    # -- users ---------------------------------------------------------------------------------------------------------

    def _options(self) -> ClientOptions:
        dice = self.dice
        return ClientOptions(
            ttl=self.ttl, request_timeout=dice.choice((1.0, 1.0, 0.3)), unavailable_after=dice.choice((3.0, 1.0, 0.4))
        )

    def _populate(self) -> None:
        dice = self.dice
        engine = self.make_engine()
        for number in range(dice.randint(*self.processes)):
            process = self.simulator.process(f"p{number}", offset=dice.uniform(0.0, 1e6), rate=self.clock_rate())
            runtime = SimulatedRuntime(process)
            options = self._options()
            core = self.cores[process] = Core(engine, options, runtime, runtime)
            self.orphans.listen(core, process)
            policies = self.make_policies(options, engine)
            for place in range(dice.randint(*self.users)):
                user = self.make_user(core, process, f"u{place}", policies)
                self._users.append(process.spawn(user.run(), f"u{place}"))

    # -- reported by the servers ---------------------------------------------------------------------------------------

    def _executed(self, node: Node, words: Sequence[bytes], reply: Any) -> None:
        if words[0] not in (b"EVALSHA", b"EVAL"):
            return
        script = node.network.script_names[words[1]]
        self.history.add(self.simulator.time, node.name, script, words, reply)
        change = node.view.after(script, words, reply)
        for owner in change.granted:
            self.holders.given(owner, node.name, held=self.majority.holds(owner))
        self.displaced(node, change.displaced)

    def displaced(self, node: Node, owners: Sequence[str]) -> None:
        """``node`` has lost the locks of ``owners`` by a break, or by a fault outside the engine's model."""
        for owner in owners:
            self.holders.taken(owner, node.name, lost=not self.majority.holds(owner), time=self.simulator.time)

    def crash(self, process: Process) -> None:
        """Like SIGKILL: the servers find its connections closed."""
        process.crash()
        self.holders.died(process)
        for node in self.nodes:
            node.network.hang_up(process)

    # -- running -------------------------------------------------------------------------------------------------------

    def run(self) -> Report:
        """A phase with faults, one without, then the checks at the end."""
        simulator = self.simulator
        nemesis = Nemesis(self)
        simulator.after_step = lambda: self.holders.look(simulator.time)
        nemesis.start()
        simulator.run(self.dice.uniform(*_FAULT_PHASE))
        nemesis.heal()
        self._let_users_finish()
        # Locks that were never confirmed expire within a ttl.
        simulator.run(max(simulator.time, self.faults.last_effect) + self.ttl + _SLACK)
        self._check_end()
        self._close_clients()
        return Report(
            simulator.time,
            self.holders.grants,
            sum(map(len, self.shared.acknowledged.values())),
            dict(self.faults.counts),
        )

    def _let_users_finish(self) -> None:
        simulator = self.simulator
        while self._working():
            simulator.run(simulator.time + 1.0)
            if simulator.time > _HORIZON:
                raise Violation("I6", "the users do not finish: " + "; ".join(self._working()))

    def _working(self) -> list[str]:
        return [task.where() for task in self._users if not task.process.dead and not task.done.is_set()]

    # -- checks --------------------------------------------------------------------------------------------------------

    def _check_end(self) -> None:
        for name, numbers in self.shared.acknowledged.items():
            if missing := numbers - self.register.values.get(name, frozenset()):
                raise Violation("I3", f"register {name}: acknowledged additions {sorted(missing)} are not there")
        for name in self.names:
            for node in self.nodes:
                for owner in node.view.owners(name):
                    raise Violation("I8", f"{node.name} still has {name} for …{owner[-4:]}, a ttl after the end")
        for node in self.nodes:
            self._check_leaks(node)
        for process, core in self.cores.items():
            if not process.dead and (core.live or core.young):
                raise Violation("I9", f"{process.name} still keeps holds after all users had finished")

    def _check_leaks(self, node: Node) -> None:
        for key in node.model.keys:
            if node.model.keys.expiry(key) is None and key not in self.lasting_keys:
                raise Violation("I9", f"key {key.decode()} would stay on {node.name} without an expiry")
        if node.network.watches:
            raise Violation("I9", f"{len(node.network.watches)} watches on {node.name} were never closed")

    def _close_clients(self) -> None:
        """Invariant I9, no leaks: a closed client leaves no task and no connection behind."""
        for process, core in self.cores.items():
            process.spawn(core.close(), "close")
        self.simulator.run(self.simulator.time + _SLACK)
        for process in self.cores:
            if not process.dead and process.tasks:
                raise Violation("I9", "after close: " + "; ".join(task.where() for task in process.tasks))
        if links := sum(len(node.network.links) for node in self.nodes):
            raise Violation("I9", f"{links} connections are open after close")

    def close(self) -> None:
        for lease in self.shared.leases:
            lease.disown()
        super().close()
