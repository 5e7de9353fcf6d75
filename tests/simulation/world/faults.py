"""The faults of one run: which ones, how often, and which have happened."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass, fields
from typing import Final

from tests.simulation.world.runtime import Process


@dataclass(frozen=True)
class FaultPlan:
    """Rates of faults. Per message: a probability. Per process or server: a number per simulated second."""

    lose_request: float = 0.0  #: the request never arrives; neither side is notified that the connection is dead
    lose_reply: float = 0.0  #: the request runs, but its answer never arrives (and the connection is dead)
    repeat: float = 0.0  #: a middlebox sends a request twice in a row; the first answer counts
    repeat_late: float = 0.0  #: the answer is lost, and a copy of the request arrives up to several ttls later
    stall: float = 0.0  #: the network delays one message, and all behind it, for up to several ttls
    slow: float = 0.0  #: a message takes up to a third of a second
    lose_push: float = 0.0  #: only one push is lost
    pause_step: float = 0.0  #: probability that a process is frozen before one of its steps
    pause: float = 0.0  #: frozen at a random time
    crash: float = 0.0
    cut: float = 0.0  #: all connections of a process are reset
    partition: float = 0.0  #: no message passes between a process and the server for a while; then all arrive
    flush: float = 0.0  #: FLUSHALL: outside the engine's declared model
    delete: float = 0.0  #: DEL of a lock by an operator: likewise
    restart: float = 0.0  #: the server restarts empty: likewise, unless it stays down for long enough
    outage: float = 0.0  #: the server is down for a while and restarts with its data
    clock_step: float = 0.0  #: the server's clock jumps: if forward, keys expire early
    script_flush: float = 0.0
    clock_rate: float = 0.0  #: clocks differ by up to this share (the margin of deadlines is a hundredth)

    def __str__(self) -> str:
        return ", ".join(f"{f.name}={getattr(self, f.name):.4g}" for f in fields(self) if getattr(self, f.name))


#: The highest rate of each fault in a world with one server.
ONE_SERVER: Final = FaultPlan(
    lose_request=0.03,
    lose_reply=0.03,
    repeat=0.05,
    repeat_late=0.03,
    stall=0.02,
    slow=0.2,
    lose_push=0.5,
    pause_step=0.003,
    pause=0.1,
    crash=0.02,
    cut=0.1,
    partition=0.05,
    flush=0.02,
    delete=0.04,
    restart=0.02,
    script_flush=0.1,
    clock_rate=0.009,
)


def draw_plan(dice: random.Random, most: FaultPlan) -> FaultPlan:
    """A random mix. Each fault is missing in half of the plans, because others would prevent rare combinations."""
    rates = {f.name: getattr(most, f.name) for f in fields(FaultPlan)}
    return FaultPlan(
        **{kind: rate * dice.random() if dice.random() < 0.5 else 0.0 for kind, rate in rates.items() if rate}
    )


class Faults:
    """Applies the plan. ``healed`` ends all faults; their effects may still arrive until ``last_effect``.

    A world has faults, and so has each of its servers (see ``part``).
    """

    def __init__(self, plan: FaultPlan, dice: random.Random, whole: Faults | None = None) -> None:
        self.plan = plan
        self.dice = dice
        self.healed = False
        self.last_effect = 0.0
        self.counts: Counter[str] = Counter() if whole is None else whole.counts
        self._whole = whole
        self._parts: list[Faults] = []
        self._disturbed: dict[Process | None, float] = {}

    def part(self, plan: FaultPlan) -> Faults:
        """The faults of one server and of the network to it. They are also counted as faults of the world."""
        part = Faults(plan, self.dice, self)
        self._parts.append(part)
        return part

    def heal(self) -> None:
        """Ends all faults, here and in all parts."""
        for each in (self, *self._parts):
            each.healed = True

    def happens(self, kind: str, seconds: float = 1.0) -> bool:
        """Draws whether a fault happens to one message or step, or in so many seconds of a process. Counts it."""
        rate: float = getattr(self.plan, kind) * seconds
        if not rate or self.healed or self.dice.random() >= rate:
            return False
        self.counts[kind] += 1
        return True

    def lasts_until(self, time: float, process: Process | None = None) -> None:
        """Records that a fault has effects until ``time``, for one process or for all."""
        self._disturbed[process] = max(time, self._disturbed.get(process, 0.0))
        if not self.healed:
            whole = self._whole or self
            whole.last_effect = max(whole.last_effect, time)

    def last_disturbance(self) -> float:
        """The end of the last fault of anything so far."""
        return max((end for each in (self, *self._parts) for end in each._disturbed.values()), default=-math.inf)

    def disturbed(self, process: Process) -> float:
        """The end of the last fault of ``process`` or of this part; for the whole world: the end of any fault."""
        related = (self, *self._parts) if self._whole is None else (self, self._whole)
        return max(each._disturbed.get(affected, -math.inf) for each in related for affected in (process, None))
