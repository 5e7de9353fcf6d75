"""One caller, one name, no contention: a lock on ZooKeeper beside the driver's own."""

from __future__ import annotations

from typing import Final

import holdfast
from bench.harness import MICROSECONDS, Answer, Scale, race
from bench.mutexes import HOLDFAST, KAZOO, TTL, mutexes
from tests.servers.zookeeper import ZooKeeperServer

TITLE: Final = "ZooKeeper, sync: uncontended acquire + release"


def ask(scale: Scale) -> Answer:
    with (
        ZooKeeperServer() as server,
        holdfast.connect(server.url, ttl=TTL) as locks,
        mutexes(KAZOO, server.url, "theirs") as make,
    ):
        ours, theirs = locks.lock("ours"), make()

        def kazoo() -> None:
            theirs.acquire(TTL)
            theirs.release()

        figures = race(
            {KAZOO: kazoo, HOLDFAST: lambda: ours.acquire().release()}, rounds=scale(15, 3), pairs=scale(60, 10)
        )
    answer = Answer(
        "One standalone server (forceSync=no) and one client on all cores; µs for one acquire and one release.",
        figures,
        drawn=(MICROSECONDS, "less"),
    )
    price = answer.ratio(HOLDFAST, KAZOO, MICROSECONDS)
    answer.promise("ZooKeeper, uncontended pair: against kazoo's Lock", str(price), "≤ 1.1×", price.value <= 1.1)
    return answer
