"""Many fencing tokens: the shipped Redlock session alone, without the core, with delayed, lost and repeated messages
and lost data.

Exclusion is broken here on purpose, because no server keeps a lock for long. Only the order of the tokens is checked.
Each must be larger than that of every grant that was complete before its acquire began, and no two may be equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from holdfast.engines.base import Claim, Granted, RequestFailed
from holdfast.engines.redis.attempt import RedlockAttempt
from holdfast.engines.redis.redlock.session import RedlockSession
from tests.simulation.checkers.history import Violation
from tests.simulation.client.channel import SimChannel
from tests.simulation.redlock.engine import SimRedlockEngine
from tests.simulation.world.base import BaseWorld, Report
from tests.simulation.world.faults import FaultPlan, draw_plan
from tests.simulation.world.node import Node
from tests.simulation.world.runtime import Process, SimulatedRuntime

#: Grants of one run.
GRANTS: Final = 2000
_NAME: Final = "a"
_TTL: Final = 0.3
_TIMEOUT: Final = 0.2
_CLIENTS: Final = 4
#: How long a client pauses, and how long a server keeps the lock before it loses it: seconds, on average.
_RESTS: Final = 0.15
_KEEPS: Final = 0.015
#: The share of grants that are released; the servers lose the others.
_RELEASED: Final = 0.2
#: How much the rates of clocks differ: as in good clocks, or as much as the margin of deadlines allows.
_GOOD_RATE: Final = 0.00002
_CLOCK_RATES: Final = (_GOOD_RATE, _GOOD_RATE, 0.009)
#: The difference of the servers' clocks. A server that has lost its counters must be down for longer (rule 7), plus
#: the time that a client may need to read the servers' clocks.
_SKEW: Final = 0.02
_RESTART_TAKES: Final = (0.1, 0.3)
_HORIZON: Final = 10_000.0

_MESSAGES: Final = FaultPlan(lose_request=0.01, lose_reply=0.01, repeat=0.02, repeat_late=0.01, stall=0.003, slow=0.02)
#: Either no counter is ever lost, or counters are lost and clocks do not jump.
_INTACT: Final = replace(_MESSAGES, clock_step=10.0)
_FORGETFUL: Final = replace(_MESSAGES, restart=1.0)


class GrantsWorld(BaseWorld):
    """Several clients acquire one lock as fast as they can."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        dice = self.dice
        most = _INTACT if self.faults.plan.clock_rate > _GOOD_RATE else dice.choice((_INTACT, _FORGETFUL, _FORGETFUL))
        self.nodes = [self._make_node(number, draw_plan(dice, most)) for number in range(dice.choice((3, 5)))]
        self.grants = 0
        self.attempts = 0
        self.raised: set[bytes] = set()  #: owners that needed the second phase
        self._newest = 0
        self._owners: dict[int, str] = {}
        engine = SimRedlockEngine(self.nodes, multiplexed=dice.random() < 0.5, tracking=False)
        for number in range(_CLIENTS):
            process = self.simulator.process(f"p{number}", offset=dice.uniform(0.0, 1e6), rate=self.clock_rate())
            process.spawn(self._client(process, engine.session(SimulatedRuntime(process))), "client")

    def draw_plan(self) -> FaultPlan:
        return FaultPlan(clock_rate=self.dice.choice(_CLOCK_RATES))

    def _make_node(self, number: int, plan: FaultPlan) -> Node:
        node = Node(
            self.simulator,
            f"s{number}",
            self.faults.part(plan),
            [_NAME],
            _TTL,
            rate=self.clock_rate(),
            ahead=_SKEW * self.dice.random(),
            client_timeout=_TIMEOUT,
        )
        node.network.before_execution = lambda: None  # the behaviour of one server is checked in other worlds
        node.network.after_execution = partial(self._executed, node)
        return node

    def run(self) -> Report:
        for node in self.nodes:
            self._forget(node)
        self.simulator.run(_HORIZON)
        if self.grants < GRANTS:
            raise Violation("I6", f"there were only {self.grants} grants")
        counts = {**self.faults.counts, "attempts": self.attempts, "second_phases": len(self.raised)}
        return Report(self.simulator.time, self.grants, 0, counts)

    # -- servers -------------------------------------------------------------------------------------------------------

    def _executed(self, node: Node, words: Sequence[bytes], reply: Any) -> None:
        script = node.network.script_names.get(words[1])
        self.history.add(self.simulator.time, node.name, script or words[0].decode(), words, reply)
        if script == "raise":
            self.raised.add(words[6])

    def _forget(self, node: Node) -> None:
        """The lock is lost early, or the clock jumps, or the server loses all data."""
        faults = node.faults
        if faults.happens("restart", _KEEPS):
            node.network.restart_server(self.dice.uniform(*_RESTART_TAKES))
        elif faults.happens("clock_step", _KEEPS):
            node.ahead += 2 * _TTL * self.dice.random()
        else:
            node.model.delete(_NAME.encode())
        self.simulator.call_later(self.dice.expovariate(1 / _KEEPS), partial(self._forget, node))

    # -- clients -------------------------------------------------------------------------------------------------------

    async def _client(self, process: Process, session: RedlockSession[SimChannel]) -> None:
        number = 0
        while self.grants < GRANTS:
            number += 1
            attempt = session.attempt(Claim(_NAME, f"{process.name}:{number * 1000}", _TTL))
            if await self._acquire(session, attempt) and self.dice.random() < _RELEASED:
                await self._release(session, attempt)
            await process.wait_any((), process.now() + self.dice.expovariate(1 / _RESTS))
        self.simulator.stop()

    async def _acquire(self, session: RedlockSession[SimChannel], attempt: RedlockAttempt) -> bool:
        floor = self._newest
        self.attempts += 1
        try:
            answer = await session.acquire(attempt, _TIMEOUT)
        except RequestFailed:
            await self._release(session, attempt)
            return False
        if not isinstance(answer, Granted):
            return False
        self._check(answer.token, attempt.owner, floor)
        return True

    def _check(self, token: int, owner: str, floor: int) -> None:
        self.history.add(self.simulator.time, owner, "granted", token)
        if token <= floor:
            raise Violation("I5", f"token {token} for {owner}: one with {floor} was complete before this began")
        if self._owners.setdefault(token, owner) != owner:
            raise Violation("I5", f"token {token} for {owner} and for {self._owners[token]}")
        self._newest = max(token, self._newest)
        self.grants += 1

    async def _release(self, session: RedlockSession[SimChannel], attempt: RedlockAttempt) -> None:
        try:
            await session.release(attempt, _TIMEOUT)
        except RequestFailed:
            pass  # the lock expires
