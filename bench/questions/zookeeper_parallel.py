"""16 threads with 16 names on one ZooKeeper: one Python process beside one JVM with Curator."""

from __future__ import annotations

from typing import Final

from bench.harness import Answer, Scale
from bench.parallel import CONDITIONS, RATE, THREADS, compare
from bench.peers import HOLDFAST, KAZOO
from bench.peers.jvm import CURATOR
from tests.servers.zookeeper import ZooKeeperServer

TITLE: Final = f"ZooKeeper: {THREADS} threads, each with a name of its own"


def ask(scale: Scale) -> Answer:
    with ZooKeeperServer() as server:
        address = f"{server.host}:{server.port}"
        figures, missing = compare((KAZOO, HOLDFAST), CURATOR, server.url, address, scale)
    answer = Answer(CONDITIONS, figures, remarks=missing, drawn=(RATE, "more"))
    what = f"ZooKeeper, {THREADS} threads, {THREADS} names: pairs/s"
    answer.compare(f"{what} against kazoo's", answer.ratio(HOLDFAST, KAZOO, RATE))
    answer.compare(f"{what} against Curator's (JVM)", answer.ratio(HOLDFAST, CURATOR, RATE))
    return answer
