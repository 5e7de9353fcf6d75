"""One caller, one name, no contention: what does a lock on Redis cost beyond its round trips?"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from bench.floor import BareSocket, prepacked
from bench.harness import MICROSECONDS, TOTAL_CPU, Answer, Scale, race
from bench.peers import HOLDFAST, PYTHON_REDIS_LOCK, REDIS_PY, VALKEY_GLIDE_SYNC, Pair, pair, present
from bench.placement import redis_beside
from bench.server_cost import ServerMeter

TITLE: Final = "Redis, sync: uncontended acquire + release"

_FLOOR: Final = "floor: bare socket, 2 × EVALSHA"
_CONNECTION: Final = "redis-py Connection, packed beforehand"


def ask(scale: Scale) -> Answer:
    kinds, missing = present((REDIS_PY, PYTHON_REDIS_LOCK, VALKEY_GLIDE_SYNC, HOLDFAST))
    with redis_beside() as server, ExitStack() as stack:
        client = server.client()
        bare = BareSocket(server.host, server.port, client)
        stack.callback(bare.close)
        candidates: dict[str, Pair] = {_FLOOR: bare.pair, _CONNECTION: prepacked(client)}
        for kind in kinds:
            candidates[kind] = stack.enter_context(pair(kind, server.url, f"uncontended:{kind}"))
        figures = race(candidates, rounds=scale(21, 5), pairs=scale(300, 60), servers=ServerMeter(server.client()))
    answer = Answer(
        "Client and server on one core; µs for one acquire and one release of a Lock object that is reused.",
        figures,
        remarks=missing,
        drawn=(MICROSECONDS, "less"),
    )
    above = answer.ratio(HOLDFAST, _FLOOR, MICROSECONDS)
    faster = answer.ratio(REDIS_PY, HOLDFAST, MICROSECONDS)
    answer.at_most("Redis, sync, uncontended pair: against the floor", above, 1.7, 1.5)
    answer.at_least("Redis, sync, uncontended pair: faster than redis-py's Lock", faster, 2.3, 2.6)
    by_cpu = answer.ratio(HOLDFAST, _FLOOR, TOTAL_CPU)
    answer.compare("Redis, sync, uncontended pair: CPU of both against the floor", by_cpu, headline=False)
    by_cpu = answer.ratio(REDIS_PY, HOLDFAST, TOTAL_CPU)
    answer.compare("Redis, sync, uncontended pair: less CPU of both than redis-py's Lock", by_cpu, headline=False)
    return answer
