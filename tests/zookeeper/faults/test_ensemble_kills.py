"""kill -9 of members of an ensemble under four contending processes: never two holders, no lost update (issue 4).

ZooKeeper's model excludes a double hold for any killed member, so none may occur here, fenced or not.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast._runtime import clock
from holdfast.testing.conformance.opening import Api
from tests.redis.failover.worker import Workers, registers
from tests.servers.ensemble import Ensemble
from tests.support.clients import Clients, LossReports, open_clients
from tests.support.history import check_tokens, double_holds
from tests.support.waiting import until
from tests.zookeeper.validity import end_of_validity

#: From the moment that a majority serves again to the first grant: the client has to detect a dead connection and to
#: find another member; a session of a second may have ended meanwhile.
SERVICE_IS_BACK_WITHIN = 4.5
#: An answer that was under way when the servers died has arrived by then, even after a scheduler stall.
ANSWERED_WITHIN = 1.5
#: The ttl of leases that survive any election, and of one that does not survive an outage.
LONG, SHORT = 40.0, 2.0
APIS: list[Api] = ["sync", "async", "sync", "async"]


def grants_since(workers: Workers, moment: float) -> list[float]:
    return [hold.acquired for hold in workers.holds() if hold.acquired > moment]


def check(workers: Workers, directory: Path) -> None:
    """Invariants I1, I3, I5. Bodies are short: a process that is not frozen loses no update, even without a fence."""
    assert {failure.error for failure in workers.failures()} <= {"EngineUnavailable", "UnavailableOutcomeUnknown"}
    holds = workers.holds()
    assert double_holds(holds) == []
    check_tokens(holds)
    acknowledged = {hold.added for hold in holds if hold.added is not None}
    assert len(acknowledged) == len(holds), "no token was ever stale"
    for register in registers(directory):
        assert acknowledged <= register.numbers()


async def test_service_and_leases_survive_one_killed_member_of_three(ensemble: Ensemble, tmp_path: Path) -> None:
    """First the leader is killed; after it has rejoined as a follower, a follower is killed."""
    with Workers(ensemble.url, tmp_path, APIS) as workers:
        async with open_clients("sync") as threads, open_clients("async") as tasks:
            kept = [await Kept.by(ours, ensemble.url) for ours in (threads, tasks)]
            await until(lambda: all(len(journal.holds()) > 2 for journal in workers.journals), 20.0)
            for choose in (ensemble.leader, lambda: ensemble.followers()[0]):
                ensemble.wait_until_complete()
                victim = choose()
                ensemble.kill(victim)
                ensemble.wait_for_leader()
                served = clock.now()
                await until(lambda: grants_since(workers, served), SERVICE_IS_BACK_WITHIN)  # noqa: B023
                victim.respawn()
            for each in kept:
                await each.check()
            workers.stop()
    check(workers, tmp_path)


class Kept:
    """A lock without contenders, whose session survives the election."""

    def __init__(self, ours: Clients, lease: Any, reports: LossReports) -> None:
        self._ours, self._lease, self._reports = ours, lease, reports

    @classmethod
    async def by(cls, ours: Clients, url: str) -> Kept:
        reports = LossReports()
        lease = await ours.acquire(
            ours.connect(url, ttl=LONG, unavailable_after=20.0), f"kept-{ours.api}", on_lost=reports
        )
        return cls(ours, lease, reports)

    async def check(self) -> None:
        await self._ours.do(self._lease.renew)
        assert self._lease.held
        assert self._reports.at == []
        await self._ours.do(self._lease.release)


async def test_two_killed_members_of_three_stop_the_service_until_one_is_back(
    ensemble: Ensemble, tmp_path: Path
) -> None:
    """The service is unavailable, which every client reports; it resumes with the second member."""
    one, other = ensemble.leader(), ensemble.followers()[0]
    with Workers(ensemble.url, tmp_path, APIS) as workers:
        async with open_clients("sync") as threads, open_clients("async") as tasks:
            cut_short = [CutShort(ours, ensemble.url) for ours in (threads, tasks)]
            await until(lambda: all(len(journal.holds()) > 2 for journal in workers.journals), 20.0)
            for each in cut_short:
                await each.begin()
            ensemble.kill(one, other)
            killed = clock.now()
            await asyncio.gather(*(each.check(killed) for each in cut_short))
            assert grants_since(workers, killed + ANSWERED_WITHIN) == [], "a single member grants nothing"
            other.respawn()
            ensemble.wait_for_leader()
            served = clock.now()
            await until(lambda: grants_since(workers, served), SERVICE_IS_BACK_WITHIN)
            for each in cut_short:
                await each.acquire_again()
            workers.stop()
    check(workers, tmp_path)


class CutShort:
    """A lock without contenders, which cannot be renewed."""

    def __init__(self, ours: Clients, url: str) -> None:
        self._ours = ours
        self._name = f"short-{ours.api}"
        self._long_timeout = ours.connect(url, ttl=SHORT, unavailable_after=20.0)
        self._short_timeout = ours.connect(url, ttl=SHORT, unavailable_after=0.5)
        self._reports = LossReports()
        self._lease: Any = None

    async def begin(self) -> None:
        self._lease = await self._ours.acquire(self._short_timeout, self._name, on_lost=self._reports)

    async def check(self, killed: float) -> None:
        """Invariant I7: the lease expires by itself, and unreachable is not reported as busy."""
        assert await end_of_validity(self._lease) < killed + SHORT
        await until(lambda: self._reports.at)
        assert self._reports.reasons == ["unreachable"]
        with pytest.raises(holdfast.EngineUnavailable):
            await self._ours.acquire(self._short_timeout, self._name, timeout=None)

    async def acquire_again(self) -> None:
        again = await self._ours.acquire(self._long_timeout, self._name)
        assert again.token > self._lease.token
