"""A world in which most callers wait for others of their own process, and acquire again as soon as they have released.

So many of the locks that are handed over inside a process are taken back before their receiver has run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from unittest import mock

from holdfast._config.options import ClientOptions
from holdfast._core.core import Core
from holdfast._core.grant import Grant
from holdfast._core.local_queue import LocalQueue, LocalWaiter
from holdfast._core.policy import Policy
from holdfast.engines.base import Engine
from tests.simulation.world.base import Report
from tests.simulation.world.runtime import Process
from tests.simulation.world.single import World
from tests.simulation.world.workload import SimLease, Step, User


class BusyUser(User):
    """Several holds in a row, most of them short."""

    async def run(self) -> None:
        while not self._shared.faults.healed:
            for _ in range(self._dice.randint(1, 20)):
                await self._work(self._policies[0], self._draw_timeout())
            await self._sleep(self._dice.expovariate(5.0))
        await self._work(self._policies[0], None)

    def _steps(self, lease: SimLease) -> Sequence[Step]:
        return super()._steps(lease) if self._dice.random() < 0.05 else (self._nothing,)

    async def _nothing(self, lease: SimLease) -> None:
        """A short section."""


class LocalWorld(World):
    """One name, few processes, many callers in each."""

    processes = (1, 3)
    users = (2, 6)

    def __init__(self, seed: int) -> None:
        self.taken_back = 0  #: how many grants were
        super().__init__(seed)

    def draw_names(self) -> list[str]:
        return ["a"]

    def make_user(self, core: Core, process: Process, name: str, policies: Sequence[Policy]) -> User:
        return BusyUser(self.shared, core, process, name, policies)

    def make_policies(self, options: ClientOptions, engine: Engine) -> list[Policy]:
        return [dataclasses.replace(policy, fair=False) for policy in super().make_policies(options, engine)]

    def run(self) -> Report:
        take_back = LocalQueue.take_back  # perhaps a mutant's

        def counted(queue: LocalQueue, key: str, receiver: LocalWaiter, now: float) -> Grant | None:
            grant = take_back(queue, key, receiver, now)
            self.taken_back += grant is not None
            return grant

        with mock.patch.object(LocalQueue, "take_back", counted):
            report = super().run()
        return dataclasses.replace(report, faults=report.faults | {"taken back": self.taken_back})
