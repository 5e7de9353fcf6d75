"""One process waits, another releases, on ZooKeeper: how long until the waiter holds the lock? Beside Curator."""

from __future__ import annotations

from functools import partial
from typing import Final

from bench.handing_over import CONDITIONS, P50, between_jvms, between_workers
from bench.harness import Answer, Round, Scale, interleave
from bench.peers import HOLDFAST, KAZOO, jvm, present
from bench.peers.jvm import CURATOR, racers
from bench.workers import Workers
from tests.servers.zookeeper import ZooKeeperServer

TITLE: Final = "ZooKeeper: hand-over latency, one waiter"


def ask(scale: Scale) -> Answer:
    turns = scale(40, 10)
    kinds, missing = present((KAZOO, HOLDFAST))
    with ZooKeeperServer() as server, Workers(2) as workers:
        candidates: dict[str, Round] = {
            kind: partial(between_workers, kind, server.url, workers, turns) for kind in kinds
        }
        address = f"{server.host}:{server.port}"
        with racers(CURATOR, address, 2, 1, quick=scale.quick) as two:
            if two:
                candidates[CURATOR] = partial(between_jvms, two[0], two[1], turns)
            figures = interleave(candidates, rounds=scale(3, 1))
    answer = Answer(CONDITIONS, figures, remarks=missing + jvm.missing(CURATOR), drawn=(P50, "less"))
    what = "ZooKeeper, hand-over to one waiter, p50"
    answer.compare(f"{what}: against kazoo's Lock", answer.ratio(HOLDFAST, KAZOO, P50))
    answer.compare(f"{what}: against Curator's (JVM)", answer.ratio(HOLDFAST, CURATOR, P50))
    return answer
