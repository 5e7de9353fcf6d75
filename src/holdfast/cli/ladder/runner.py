"""Runs cells. The servers that a cell needs are started by the first cell that needs them."""

from __future__ import annotations

import os
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

from holdfast.cli.ladder import faults
from holdfast.cli.ladder.experiment import Experiment
from holdfast.cli.ladder.processes import LadderFailed, Misplaced, Processes
from holdfast.cli.ladder.servers import Redis, ZooKeeper, missing_redis, missing_zookeeper
from holdfast.cli.ladder.verdicts import Cell, Fault, Outcome, Rung, expected, place_of

_MASTERS: Final = 3
#: Attempts to place a fault. On a slow machine a fault may miss its place.
_ATTEMPTS: Final = 5


class Ladder:
    """``with Ladder() as ladder:``, then ``run`` cells. Nothing is started before a cell needs it."""

    def __init__(self) -> None:
        self.missing_redis = missing_redis()
        self.missing_zookeeper = missing_zookeeper()
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        self._processes = self._exits.enter_context(Processes())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._exits.close()

    def missing(self, rung: Rung, fault: Fault) -> str:
        """What this machine lacks for a cell; empty if nothing."""
        place = place_of(rung, fault, with_redis=not self.missing_redis)
        if place == "zookeeper":
            return self.missing_zookeeper
        return "" if place == "embedded" else self.missing_redis

    def run(self, rung: Rung, fault: Fault) -> Outcome:
        """Run one cell once. The fault must apply to the rung, and no server may be missing."""
        for _ in range(_ATTEMPTS):
            try:
                return self._run(rung, fault)
            except Misplaced:
                continue
        raise LadderFailed(f"{fault.name} could not be placed in {_ATTEMPTS} attempts: this machine is too slow")

    def cell(self, rung: Rung, fault: Fault, runs: int) -> Cell:
        """Run one cell. It has no outcomes if a server is missing or the fault does not apply."""
        missing = self.missing(rung, fault)
        count = 0 if missing or expected(rung, fault) is None else runs
        return Cell(rung, fault, [self.run(rung, fault) for _ in range(count)], missing)

    def _run(self, rung: Rung, fault: Fault) -> Outcome:
        name = f"ladder-{uuid.uuid4().hex}"
        place = place_of(rung, fault, with_redis=not self.missing_redis)
        if fault.name == "failover":
            return self._run_failover(rung, name)
        if place == "embedded":
            path = quote(os.fsencode(self._processes.directory / "locks.db"))
            experiment = Experiment(self._processes, rung, [f"sqlite:{path}"], name, None)
        elif place == "zookeeper":
            experiment = Experiment(self._processes, rung, self._zookeeper.addresses, name, None)
        elif place == "masters":
            experiment = Experiment(self._processes, rung, self._redlock_addresses(rung), name, None)
        else:
            experiment = Experiment(self._processes, rung, [self._redis.url], name, self._redis)
        with experiment:
            return faults.SCRIPTS[fault.name](experiment)

    def _run_failover(self, rung: Rung, name: str) -> Outcome:
        servers: faults.Failover
        if rung.number == 8:
            servers = _LeaderDies(self._zookeeper)
            addresses = self._zookeeper.addresses
        elif rung.number == 7:
            servers = _MasterComesBackEmpty(self._masters)
            addresses = self._redlock_addresses(rung)
        else:
            servers = _ReplicaTakesOver(
                Redis(self._processes, f"master-{name}"), Redis(self._processes, f"replica-{name}")
            )
            addresses = [servers.master.url]
        with Experiment(self._processes, rung, addresses, name, None) as experiment:
            outcome = faults.failover(experiment, servers)
        servers.clean_up()
        return outcome

    def _redlock_addresses(self, rung: Rung) -> list[str]:
        if rung.number == 9:  # one address: the URL of the engine
            return [f"redlock://{','.join(f'127.0.0.1:{master.port}' for master in self._masters)}"]
        return [master.url for master in self._masters]

    @cached_property
    def _redis(self) -> Redis:
        return Redis(self._processes, "redis")

    @cached_property
    def _masters(self) -> list[Redis]:
        return [Redis(self._processes, f"master-{number}") for number in range(1, _MASTERS + 1)]

    @cached_property
    def _zookeeper(self) -> ZooKeeper:
        return ZooKeeper(self._processes, "zookeeper")


@dataclass
class _ReplicaTakesOver:
    master: Redis
    replica: Redis
    what: str = "the master dies before it has replicated the lock; the replica is promoted"

    def prepare(self) -> None:
        self.replica.follow(self.master)
        self.replica.lose_master()

    def fail_over(self) -> list[str]:
        self.master.kill()
        self.replica.promote()
        return [self.replica.url]

    def clean_up(self) -> None:
        self.replica.kill()


@dataclass
class _MasterComesBackEmpty:
    masters: list[Redis]
    what: str = "one of the masters dies and comes back empty"

    def prepare(self) -> None:
        """All masters are running already."""

    def fail_over(self) -> list[str]:
        self.masters[0].restart_empty()
        return [master.url for master in self.masters]

    def clean_up(self) -> None:
        """All masters are running again."""


@dataclass
class _LeaderDies:
    ensemble: ZooKeeper
    what: str = "the leader dies; another one is elected"

    def prepare(self) -> None:
        """All members are running already."""

    def fail_over(self) -> list[str]:
        self.ensemble.replace_leader()
        return self.ensemble.addresses

    def clean_up(self) -> None:
        self.ensemble.repair()
