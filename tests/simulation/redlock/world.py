"""A world with several independent servers. Each has its own faults and clock, and a majority decides.

There are two kinds of run. *Intact*: servers may be down for a while; clocks may jump and locks may be deleted, which
the engine's model excludes (such a lock may have two holders, but tokens stay in order); no fencing counter is ever
lost. *Forgetful*: servers lose all data when they restart, but stay down for longer than any ttl plus the difference
of their clocks (rule 7): then every invariant must hold.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from holdfast.engines.base import Engine
from tests.simulation.redlock.engine import SimRedlockEngine
from tests.simulation.world.faults import FaultPlan, draw_plan
from tests.simulation.world.node import Node
from tests.simulation.world.single import World

#: The highest rate of each fault: of processes, and of each server and the network to it.
_PROCESSES: Final = FaultPlan(pause_step=0.001, pause=0.1, crash=0.02, cut=0.1, partition=0.2, clock_rate=0.009)
_EACH_SERVER: Final = FaultPlan(
    lose_request=0.03,
    lose_reply=0.03,
    repeat=0.05,
    repeat_late=0.06,
    stall=0.02,
    slow=0.1,
    lose_push=0.3,
    outage=0.04,
    script_flush=0.02,
)
_INTACT: Final = replace(_EACH_SERVER, delete=0.03, clock_step=0.03)
_FORGETFUL: Final = replace(_EACH_SERVER, restart=0.1)
#: The share of servers with any faults: faults of one server must not affect another.
_TROUBLED: Final = 0.7
#: The share of the client's timeout for each of the requests to all servers.
_REQUEST_SHARE: Final = 0.25
#: The error of the clients' estimates of the servers' time, in addition to the difference between the servers.
_ESTIMATE: Final = 0.5


class RedlockWorld(World):
    """A world with three or five servers."""

    restart_is_harmless = True
    grace = 2.0
    #: A server that has failed is skipped for a while, and a lock may stay on it for the ttl.
    skipped_for = 10.0

    def draw_plan(self) -> FaultPlan:
        return draw_plan(self.dice, _PROCESSES)

    def make_nodes(self) -> list[Node]:
        dice = self.dice
        most = dice.choice((_INTACT, _INTACT, _FORGETFUL))
        skew = dice.choice((0.0, 0.01, 1.0, 3.0))
        shortest = 1.05 * max(self.ttl, skew) + _ESTIMATE
        self.restart_takes = (shortest, 2 * shortest)
        return [
            Node(
                self.simulator,
                f"s{number}",
                self.faults.part(draw_plan(dice, most) if dice.random() < _TROUBLED else FaultPlan()),
                self.names,
                self.ttl,
                rate=self.clock_rate(),
                ahead=skew * dice.random(),
                client_timeout=_REQUEST_SHARE,
            )
            for number in range(dice.choice((3, 5, 5, 5)))
        ]

    def make_engine(self) -> Engine:
        dice = self.dice
        return SimRedlockEngine(self.nodes, multiplexed=dice.random() < 0.5, tracking=dice.random() < 0.8)
