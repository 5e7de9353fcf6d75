"""A world with one bounded buffer on one server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from holdfast._config.options import ClientOptions
from holdfast._core.core import Core
from holdfast._core.policy import Policy
from holdfast.engines.base import Engine
from tests.simulation.checkers.history import Violation
from tests.simulation.checkers.holder_view import HolderView
from tests.simulation.conditions.buffer_view import KEY, NAME, BufferView
from tests.simulation.conditions.sleepers import BufferHolders
from tests.simulation.conditions.users import BufferUser, Ledger
from tests.simulation.world.faults import ONE_SERVER, FaultPlan, draw_plan
from tests.simulation.world.node import Node
from tests.simulation.world.runtime import Process
from tests.simulation.world.single import World

#: The buffer is the users' data: what empties a server loses it. Waiters die often.
_MOST: Final = replace(ONE_SERVER, flush=0.0, restart=0.0, outage=0.02, crash=0.08)
#: Without faults and new operations, before all waits are ended: enough for a sleeper to be noticed.
_QUIET: Final = 9.0


class BufferWorld(World):
    """Producers and consumers in several processes."""

    processes = (3, 6)

    def __init__(self, seed: int) -> None:
        self.ledger = Ledger()
        super().__init__(seed)

    def draw_plan(self) -> FaultPlan:
        return draw_plan(self.dice, _MOST)

    def draw_names(self) -> list[str]:
        return [NAME]

    def make_holders(self) -> HolderView:
        usual = super().make_holders()
        return BufferHolders(usual.faults, usual.ttl, usual.tolerance)

    def make_nodes(self) -> list[Node]:
        faults = self.faults.part(self.faults.plan)
        node = Node(self.simulator, "server", faults, self.names, self.ttl, rate=self.clock_rate(), view=BufferView)
        assert isinstance(self.holders, BufferHolders)
        assert isinstance(node.view, BufferView)
        self.holders.view = self.view = node.view
        self.lasting_keys = frozenset({self.view.register})
        return [node]

    def make_policies(self, options: ClientOptions, engine: Engine) -> list[Policy]:
        return [replace(policy, reentrant=True, register=KEY) for policy in super().make_policies(options, engine)]

    def make_user(self, core: Core, process: Process, name: str, policies: Sequence[Policy]) -> BufferUser:
        user = BufferUser(self.shared, core, process, name, policies)
        user.ledger = self.ledger
        return user

    def _let_users_finish(self) -> None:
        self.simulator.run(max(self.simulator.time, self.faults.last_effect) + _QUIET)
        for process, core in self.cores.items():
            policies = self.make_policies(core.options, core.engine)
            self._users.append(process.spawn(self.make_user(core, process, "z", policies).close_buffer(), "z"))
        super()._let_users_finish()

    def _check_end(self) -> None:
        super()._check_end()
        ledger, view = self.ledger, self.view
        if lost := ledger.put - view.put:
            raise Violation("I3", f"acknowledged items {sorted(lost)} were never in the buffer")
        if there := ledger.not_put & view.put:
            raise Violation("I3", f"items {sorted(there)} are in the buffer, although their operations failed")
        if len(set(ledger.taken)) < len(ledger.taken) or set(ledger.taken) - view.taken:
            raise Violation("I3", f"items were taken twice, or are still there: {sorted(ledger.taken)}")
        if lost := view.taken - ledger.to_be_taken:
            raise Violation("I3", f"items {sorted(lost)} are gone, and no consumer has taken them")
