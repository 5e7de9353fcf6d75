"""A caller acquires a name again that it holds already: what does it cost, and does it send a request?"""

from __future__ import annotations

import threading
from typing import Final

import redis

import holdfast
from bench.floor import BareSocket
from bench.harness import CLIENT_CPU, Answer, Scale, race
from bench.peers import HOLDFAST, TTL
from bench.placement import redis_beside
from bench.server_cost import ServerMeter

TITLE: Final = "Redis, sync: re-entrant acquire + release"

_TWO_TRIPS: Final = "2 round trips, as Redisson makes them (bare socket)"
_RLOCK: Final = "floor: threading.RLock"


def ask(scale: Scale) -> Answer:
    with (
        redis_beside() as server,
        redis.Redis(port=server.port) as peer,
        holdfast.connect(server.url, ttl=TTL) as locks,
    ):
        lock, local = locks.lock("ours"), threading.RLock()
        bare = BareSocket(server.host, server.port, peer)

        def ours() -> None:
            lock.acquire().release()

        def floor() -> None:
            local.acquire()
            local.release()

        with lock.acquire():
            candidates = {_RLOCK: floor, _TWO_TRIPS: bare.pair, HOLDFAST: ours}
            figures = race(candidates, rounds=scale(21, 5), pairs=scale(500, 60))
            meter = ServerMeter(peer)
            asked = scale(10_000, 1_000)
            for _ in range(asked):
                ours()
            trips = meter.spent().commands / asked
        bare.close()
    answer = Answer("Client and server on one core; one handle is held all the time.", figures)
    # CPU time: nothing is waited for here, and other load on the machine hardly changes it.
    cost = answer.figure(HOLDFAST, CLIENT_CPU)
    answer.promise("re-entrant pair: commands that Redis saw, for each", f"{trips:.4g}", "0", trips == 0)
    answer.at_most("re-entrant pair, CPU", cost.median, 3, 2, " µs")
    return answer
