"""One caller, one name: what does finding the right server of a cluster cost?"""

from __future__ import annotations

from typing import Final

import holdfast
from bench.harness import MICROSECONDS, Answer, Scale, race
from bench.peers import TTL
from bench.placement import one_core
from tests.servers.cluster import RedisCluster
from tests.servers.redis import RedisServer

TITLE: Final = "Redis Cluster, sync: uncontended acquire + release"

_ONE: Final = "holdfast, one server"
_CLUSTER: Final = "holdfast, cluster of 3 masters"


def ask(scale: Scale) -> Answer:
    with (
        one_core(),
        RedisServer() as server,
        RedisCluster() as cluster,
        holdfast.connect(server.url, ttl=TTL) as single,
        holdfast.connect(cluster.url, ttl=TTL) as clustered,
    ):
        for master in cluster.masters():
            cluster.replica_of(master).stop()  # the question is not about replication
        one, ours = single.lock("ours"), clustered.lock("ours")
        figures = race(
            {_ONE: lambda: one.acquire().release(), _CLUSTER: lambda: ours.acquire().release()},
            rounds=scale(21, 5),
            pairs=scale(300, 60),
        )
    answer = Answer(
        "Client and servers on one core, the cluster without its replicas; µs for one acquire and one release.",
        figures,
        drawn=(MICROSECONDS, "less"),
    )
    price = answer.ratio(_CLUSTER, _ONE, MICROSECONDS)
    answer.at_most("Cluster pair: against one server", price, 1.15)
    return answer
