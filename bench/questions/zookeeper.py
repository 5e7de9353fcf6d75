"""One caller, one name, no contention: a lock on ZooKeeper beside the driver's own."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from bench.harness import MICROSECONDS, Answer, Scale, race
from bench.peers import HOLDFAST, KAZOO, pair, present
from tests.servers.zookeeper import ZooKeeperServer

TITLE: Final = "ZooKeeper, sync: uncontended acquire + release"


def ask(scale: Scale) -> Answer:
    kinds, missing = present((KAZOO, HOLDFAST))
    with ZooKeeperServer() as server, ExitStack() as stack:
        candidates = {kind: stack.enter_context(pair(kind, server.url, "uncontended")) for kind in kinds}
        figures = race(candidates, rounds=scale(15, 3), pairs=scale(60, 10))
    answer = Answer(
        "One standalone server (forceSync=no) and one client on all cores; µs for one acquire and one release.",
        figures,
        remarks=missing,
        drawn=(MICROSECONDS, "less"),
    )
    price = answer.ratio(HOLDFAST, KAZOO, MICROSECONDS)
    answer.at_most("ZooKeeper, uncontended pair: against kazoo's Lock", price, 1.1)
    return answer
