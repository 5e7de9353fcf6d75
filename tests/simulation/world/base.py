"""The base of every simulated world: a simulator, servers, faults and a history."""

from __future__ import annotations

import abc
from dataclasses import dataclass

from tests.simulation.checkers.history import History
from tests.simulation.world.faults import FaultPlan, Faults
from tests.simulation.world.node import Node
from tests.simulation.world.runtime import Simulator


@dataclass
class Report:
    """Numbers of one run, for the statistics."""

    seconds: float
    grants: int
    additions: int
    faults: dict[str, int]


class BaseWorld(abc.ABC):
    """One world, made from a seed. It can be run once."""

    nodes: list[Node]

    def __init__(self, seed: int) -> None:
        self.simulator = Simulator(seed)
        self.dice = self.simulator.random
        self.history = History()
        self.faults = Faults(self.draw_plan(), self.dice)

    @abc.abstractmethod
    def draw_plan(self) -> FaultPlan:
        """Draws the faults of the processes. Each server may have a plan of its own."""

    @abc.abstractmethod
    def run(self) -> Report:
        """Runs the world and all checks. Raises Violation, or the exception of a task."""

    def clock_rate(self) -> float:
        """Draws a rate: the fastest or slowest that the plan allows, or one in between."""
        return 1.0 + self.dice.choice((-0.5, 0.5, self.dice.uniform(-0.5, 0.5))) * self.faults.plan.clock_rate

    def plans(self) -> str:
        """The fault plans as text."""
        plans = {"processes": self.faults.plan} | {node.name: node.faults.plan for node in self.nodes}
        return "; ".join(f"{where}: {plan}" for where, plan in plans.items())

    def close(self) -> None:
        """Ends all tasks without running them."""
        self.simulator.close()
