"""One process waits, another releases: how long until the waiter holds the lock? Beside Redisson on the same server."""

from __future__ import annotations

from functools import partial
from typing import Final

from bench.handing_over import CONDITIONS, FLOOR, P50, between_jvms, between_workers
from bench.harness import Answer, Round, Scale, interleave
from bench.peers import HOLDFAST, PYTHON_REDIS_LOCK, REDIS_PY, REDIS_PY_EAGER, jvm, present
from bench.peers.jvm import REDISSON, racers
from bench.server_cost import ServerMeter
from bench.workers import Workers
from tests.servers.redis import RedisServer

TITLE: Final = "Redis: hand-over latency, one waiter"


def ask(scale: Scale) -> Answer:
    turns = scale(40, 10)
    kinds, missing = present((REDIS_PY, REDIS_PY_EAGER, PYTHON_REDIS_LOCK, HOLDFAST))
    with RedisServer() as server, Workers(2) as workers:
        meter = ServerMeter(server.client())
        candidates: dict[str, Round] = {
            kind: partial(between_workers, kind, server.url, workers, turns, meter) for kind in (FLOOR, *kinds)
        }
        address = f"{server.host}:{server.port}"
        with racers(REDISSON, address, 2, 1, quick=scale.quick) as two:
            if two:
                candidates[REDISSON] = partial(between_jvms, two[0], two[1], turns, meter)
            figures = interleave(candidates, rounds=scale(3, 1))
    answer = Answer(CONDITIONS, figures, remarks=missing + jvm.missing(REDISSON), drawn=(P50, "less"))
    what = "Redis, hand-over to one waiter, p50"
    answer.at_most(f"{what}: against BLPOP", answer.ratio(HOLDFAST, FLOOR, P50), 1.1, 1.0)
    answer.at_most(f"{what}: against redis-py's Lock", answer.ratio(HOLDFAST, REDIS_PY, P50), 1)
    answer.at_most(f"{what}: against Redisson's (JVM)", answer.ratio(HOLDFAST, REDISSON, P50), 1)
    return answer
