"""What every simulated world has: a simulator, servers, faults and a history; and how it is run."""

from __future__ import annotations

import abc
from dataclasses import dataclass

from tests.simulation.checkers.history import History
from tests.simulation.world.faults import FaultPlan, Faults
from tests.simulation.world.node import Node
from tests.simulation.world.runtime import Simulator


@dataclass
class Report:
    """What one run was about, for the statistics."""

    seconds: float
    grants: int
    additions: int
    faults: dict[str, int]


class BaseWorld(abc.ABC):
    """One world, made from a seed, to be run once."""

    nodes: list[Node]

    def __init__(self, seed: int) -> None:
        self.simulator = Simulator(seed)
        self.dice = self.simulator.random
        self.history = History()
        self.faults = Faults(self.draw_plan(), self.dice)

    @abc.abstractmethod
    def draw_plan(self) -> FaultPlan:
        """What may go wrong with the processes; each server may have a plan of its own."""

    @abc.abstractmethod
    def run(self) -> Report:
        """From the start to the last check; raises Violation (or what broke)."""

    def clock_rate(self) -> float:
        """As fast or slow as the plan allows, or anywhere in between."""
        return 1.0 + self.dice.choice((-0.5, 0.5, self.dice.uniform(-0.5, 0.5))) * self.faults.plan.clock_rate

    def plans(self) -> str:
        """What may go wrong, as text."""
        plans = {"processes": self.faults.plan} | {node.name: node.faults.plan for node in self.nodes}
        return "; ".join(f"{where}: {plan}" for where, plan in plans.items())

    def close(self) -> None:
        """End all tasks without running them."""
        self.simulator.close()
