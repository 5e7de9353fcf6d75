"""A world with read-write locks and semaphores on one server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from holdfast._config.options import ClientOptions
from holdfast._core.core import Core
from holdfast._core.policy import Policy
from holdfast.engines.base import READ, WRITE, Engine, Mode, permits
from tests.simulation.checkers.holder_view import HolderView
from tests.simulation.client.engine import SimEngine
from tests.simulation.redis_model.server import RedisModel
from tests.simulation.sharing.holders import SharingHolders
from tests.simulation.sharing.permits_view import PermitsView
from tests.simulation.sharing.rwlock_view import RWLockView
from tests.simulation.sharing.users import SharingUser
from tests.simulation.sharing.view import SharingView
from tests.simulation.world.faults import FaultPlan
from tests.simulation.world.node import Node
from tests.simulation.world.runtime import Process
from tests.simulation.world.single import World
from tests.simulation.world.workload import User

_RWLOCK: Final = "rw"
_SEMAPHORE: Final = "sem"
_SIZE: Final = 3
#: The share of worlds without faults: there every waiter must be woken at once.
_UNDISTURBED: Final = 0.15


def _view(model: RedisModel, names: Sequence[str]) -> SharingView:
    return SharingView([(RWLockView if name == _RWLOCK else PermitsView)(model, name) for name in names])


class SharingWorld(World):
    """One read-write lock, one semaphore, or both."""

    def draw_plan(self) -> FaultPlan:
        plan = super().draw_plan()
        return FaultPlan() if self.dice.random() < _UNDISTURBED else plan

    def draw_names(self) -> list[str]:
        return self.dice.choice(([_RWLOCK], [_SEMAPHORE], [_RWLOCK, _SEMAPHORE]))

    def make_holders(self) -> HolderView:
        usual = super().make_holders()
        return SharingHolders(usual.faults, usual.ttl, usual.tolerance)

    def make_nodes(self) -> list[Node]:
        faults = self.faults.part(self.faults.plan)
        node = Node(self.simulator, "server", faults, self.names, self.ttl, rate=self.clock_rate(), view=_view)
        assert isinstance(self.holders, SharingHolders)
        assert isinstance(node.view, SharingView)
        self.holders.watch(node.view)
        return [node]

    def make_engine(self) -> Engine:
        dice = self.dice
        return SimEngine(self.nodes[0].network, multiplexed=dice.random() < 0.5, tracking=dice.random() < 0.5)

    def make_policies(self, options: ClientOptions, engine: Engine) -> list[Policy]:
        modes: dict[str, tuple[Mode, ...]] = {
            _RWLOCK: (READ, READ, WRITE),
            _SEMAPHORE: (permits(1, _SIZE), permits(1, _SIZE), permits(2, _SIZE), permits(_SIZE, _SIZE)),
        }
        return [
            replace(usual, mode=mode, fair=False, reentrant=usual.name == _RWLOCK)
            for usual in super().make_policies(options, engine)
            for mode in modes[usual.name]
        ]

    def make_user(self, core: Core, process: Process, name: str, policies: Sequence[Policy]) -> User:
        return SharingUser(self.shared, core, process, name, policies)
