"""A world in which nearly every lock is handed over, and waiters are frozen, lose their connections and give up."""

from __future__ import annotations

import dataclasses
from typing import Final
from unittest import mock

from holdfast._config.options import ClientOptions
from holdfast._core.policy import Policy
from holdfast.engines.base import Engine
from holdfast.engines.redis.dialect import waiters
from tests.simulation.client.engine import SimEngine
from tests.simulation.world.base import Report
from tests.simulation.world.faults import FaultPlan, draw_plan
from tests.simulation.world.single import World

_PLAN: Final = FaultPlan(
    lose_reply=0.01,
    repeat=0.05,
    repeat_late=0.1,
    stall=0.01,
    slow=0.2,
    lose_push=0.2,
    pause_step=0.01,
    pause=0.5,
    crash=0.05,
    cut=0.3,
    partition=0.05,
)
#: Short beside the faults: they are to last longer than a lease that was handed over (s).
_HANDED_OVER: Final = 0.4


class HandOverWorld(World):
    """One name, leases that are renewed, and waiters that can be pushed to."""

    processes = (3, 5)

    def draw_plan(self) -> FaultPlan:
        return draw_plan(self.dice, _PLAN)

    def draw_names(self) -> list[str]:
        return ["a"]

    def make_engine(self) -> Engine:
        return SimEngine(self.nodes[0].network, multiplexed=self.dice.random() < 0.5, tracking=True)

    def make_policies(self, options: ClientOptions, engine: Engine) -> list[Policy]:
        return [
            dataclasses.replace(policy, renew=True, max_hold=None) for policy in super().make_policies(options, engine)
        ]

    def run(self) -> Report:
        with mock.patch.object(waiters, "_HANDED_OVER", _HANDED_OVER):
            return super().run()
