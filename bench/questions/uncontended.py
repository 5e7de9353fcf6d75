"""One caller, one name, no contention: what does a lock on Redis cost beyond its round trips?"""

from __future__ import annotations

from typing import Final

import redis

import holdfast
from bench.floor import BareSocket, prepacked
from bench.harness import MICROSECONDS, Answer, Scale, race
from bench.mutexes import HOLDFAST, REDIS_PY, TTL
from bench.placement import redis_beside

TITLE: Final = "Redis, sync: uncontended acquire + release"

_FLOOR: Final = "floor: bare socket, 2 × EVALSHA"
_CONNECTION: Final = "redis-py Connection, packed beforehand"


def ask(scale: Scale) -> Answer:
    with (
        redis_beside() as server,
        redis.Redis(port=server.port) as peer,
        holdfast.connect(server.url, ttl=TTL) as locks,
    ):
        lock, peers_lock = locks.lock("ours"), peer.lock("theirs", timeout=TTL)
        bare = BareSocket(server.host, server.port, peer)

        def ours() -> None:
            lock.acquire().release()

        def theirs() -> None:
            peers_lock.acquire()
            peers_lock.release()

        candidates = {_FLOOR: bare.pair, _CONNECTION: prepacked(peer), REDIS_PY: theirs, HOLDFAST: ours}
        figures = race(candidates, rounds=scale(21, 5), pairs=scale(300, 60))
        bare.close()
    answer = Answer(
        "Client and server on one core; µs for one acquire and one release of a Lock object that is reused.",
        figures,
        drawn=(MICROSECONDS, "less"),
    )
    above = answer.ratio(HOLDFAST, _FLOOR, MICROSECONDS)
    faster = answer.ratio(REDIS_PY, HOLDFAST, MICROSECONDS)
    answer.promise("Redis, sync, uncontended pair: against the floor", str(above), "≤ 2.3×", above.value <= 2.3)
    answer.promise(
        "Redis, sync, uncontended pair: faster than redis-py's Lock", str(faster), "≥ 1.8×", faster.value >= 1.8
    )
    return answer
