"""A master of a cluster dies: no acknowledged update is lost, every double hold is reported, and service resumes."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

import holdfast
from holdfast._runtime import clock
from tests.redis.cluster.contender import NAMES, TTL, name_of
from tests.redis.cluster.support import elsewhere, keys, move, names_at, settle, slot_of
from tests.servers.cluster import ClusterNode, RedisCluster
from tests.servers.process import ServerFailed
from tests.support.clients import LossReports, open_clients
from tests.support.register import Register
from tests.support.waiting import until

pytestmark = pytest.mark.needs_redis

#: How many of the names, the most contended ones, are in moving slots.
MOVING = NAMES // 4
#: Longer than any failover.
TTL_BEYOND = 15.0
ROOT = Path(__file__).parents[3]
_CONTENDER = "tests.redis.cluster.contender"
StartCluster = Callable[..., RedisCluster]


class Contenders:
    """Four processes, two sync and two async."""

    def __init__(self, url: str, directory: Path) -> None:
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-W", "error", "-m", _CONTENDER, url, directory, api, str(number)],
                cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            for number, api in enumerate(("sync", "async") * 2)
        ]  # fmt: skip
        for process in self._processes:
            assert self._line(process) == "ready\n"

    def stop(self) -> list[dict[str, Any]]:
        """Lets the processes finish and returns their reports."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        return [json.loads(self._line(process)) for process in self._processes]

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait(10)
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()

    def _line(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline()


@contextmanager
def contenders(url: str, directory: Path) -> Iterator[Contenders]:
    directory.mkdir()
    ours = Contenders(url, directory)
    try:
        yield ours
    finally:
        ours.close()


class Mover:
    """Moves slots of contended names between masters. On request a master is killed with a slot half moved."""

    def __init__(self, cluster: RedisCluster) -> None:
        self._cluster = cluster
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._dice = random.Random(7)
        self.moved = 0
        self.victim: ClusterNode | None = None
        self._thread.start()

    def stop(self) -> None:
        """Stops moving and leaves the cluster in order."""
        self._over.set()
        self._thread.join(20)
        assert not self._thread.is_alive()
        settle(self._cluster)

    def _run(self) -> None:
        while not self._over.is_set():
            slot = slot_of(name_of(self._dice.randrange(MOVING)))
            try:
                if not self._agreed(slot):
                    continue  # a move based on an outdated view could leave the slot without an owner
                source, target = self._cluster.master_of(slot), elsewhere(self._cluster, slot)
                if source is self.victim:
                    self._die(slot, source, target)
                    self.victim = None
                else:
                    move(self._cluster, slot, target)
                    self.moved += 1
            except (redis.RedisError, ServerFailed, StopIteration):
                self._stop_move(slot)  # the move involved the dead master

    def _agreed(self, slot: int) -> bool:
        """Whether all nodes, including replicas, know the owner: a slot could be lost with a master that just received
        it."""
        maps = [node.slot_map() for node in self._cluster.nodes if node.answering]
        return len({ports[0] for each in maps for slots, ports in each.items() if slot in slots}) == 1

    def _die(self, slot: int, source: ClusterNode, target: ClusterNode) -> None:
        self._cluster.begin_migration(slot, target)
        self._cluster.move_keys(slot, target, 2)
        self._cluster.kill_master(source)
        self._stop_move(slot)

    def _stop_move(self, slot: int) -> None:
        """Ends the move of this slot, as an operator would."""
        for node in self._cluster.nodes:
            if node.answering and node.ask("ROLE")[0] == "master":
                node.cluster("SETSLOT", slot, "STABLE")


@pytest.mark.timeout(180)
async def test_contention_while_slots_move_and_a_master_dies_loses_no_update(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    cluster = start_cluster()
    directory = tmp_path / "registers"
    with contenders(cluster.url, directory) as others:
        mover = Mover(cluster)
        await until(lambda: mover.moved >= 20, within=40)
        victim = mover.victim = cluster.master_of(name_of(0))
        await until(lambda: mover.victim is None, within=40)
        died, moved = clock.now(), mover.moved
        await until(lambda: taken_over(cluster, victim.port), within=20)
        await until(lambda: clock.now() > died + TTL)
        await until(lambda: mover.moved >= moved + 10, within=40)
        records = others.stop()
        mover.stop()
    check_numbers(records, directory)
    check_holds(records)
    async with holdfast.aio.connect(cluster.url, unavailable_after=20.0) as locks:
        leases = await asyncio.gather(*(locks.lock(name_of(number)).acquire(timeout=20.0) for number in range(NAMES)))
        assert all(lease.held for lease in leases)
        await asyncio.gather(*(lease.release() for lease in leases))
    assert sum(record["met"].get("EngineUnavailable", 0) for record in records) > 0, "no caller noticed the dead master"


def taken_over(cluster: RedisCluster, port: int) -> bool:
    return all(master.port != port for master in cluster.masters())


def check_numbers(records: list[dict[str, Any]], directory: Path) -> None:
    """Every acknowledged number is there (invariant I3)."""
    acknowledged = defaultdict[str, set[int]](set)
    for record in records:
        for name, numbers in record["numbers"].items():
            acknowledged[name] |= set(numbers)
    assert sum(map(len, acknowledged.values())) > 150, "too few updates to be conclusive"
    for name, numbers in acknowledged.items():
        assert numbers <= Register(directory / name, fenced=True).numbers(), name


def check_holds(records: list[dict[str, Any]]) -> None:
    """Tokens are unique, and each double hold is reported to the older holder (invariants I1, I5, I7)."""
    by_name = defaultdict(list)
    for record in records:
        for name, *hold in record["holds"]:
            by_name[name].append(tuple(hold))
    for name, holds in by_name.items():
        holds.sort()
        tokens = [token for token, *_ in holds]
        assert len(set(tokens)) == len(tokens), name
        for (_, _, ended, reported), (_, granted, _, _) in itertools.pairwise(holds):
            assert reported or ended <= granted, f"{name} was held twice, and the older holder got no report"


async def test_hold_lost_in_a_failover_is_reported_and_not_recreated(start_cluster: StartCluster) -> None:
    """The replica that takes over never received the lock: it was cut off, then frozen (faults R16, R17)."""
    cluster = start_cluster()
    master = cluster.masters()[0]
    replica = cluster.replica_of(master)
    name, *names = names_at(master, 3)
    losses = LossReports(), LossReports()
    async with open_clients("sync") as ours, open_clients("async") as others:
        clients = [ours.connect(cluster.url, ttl=TTL_BEYOND), others.connect(cluster.url, ttl=TTL_BEYOND)]
        await ours.do(clients[0].ping)
        replica.pause()
        master.ask("CLIENT", "KILL", "TYPE", "replica")
        leases = [
            await each.acquire(client, held, on_lost=reports)
            for each, client, held, reports in zip((ours, others), clients, names, losses, strict=True)
        ]
        cluster.kill_master(master)
        replica.resume()
        await until(lambda: taken_over(cluster, master.port), within=20)
        # Reported when the lost connection raised suspicion or by the next renewal, long before the lease expires.
        await until(lambda: all(reports.reasons for reports in losses), within=10.0)
        assert [reports.reasons for reports in losses] == [["broken"], ["broken"]]
        assert keys(replica) == set(), "no client has recreated the locks"
        again = [await others.acquire(clients[1], held) for held in names]
        for old, new in zip(leases, again, strict=True):
            assert new.token > old.token
            with pytest.raises(holdfast.LockLost):
                await (ours if old is leases[0] else others).do(old.release)
        assert name not in keys(replica)
