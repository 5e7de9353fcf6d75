"""A caller acquires a name again that it holds already: what does it cost, and does it send a request?"""

from __future__ import annotations

import threading
from typing import Final

import redis

import holdfast
from bench.commands import CommandCounter
from bench.floor import BareSocket
from bench.harness import MICROSECONDS, Answer, Scale, race
from bench.mutexes import HOLDFAST, TTL
from bench.placement import redis_beside

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
            commands = CommandCounter(peer)
            asked = scale(10_000, 1_000)
            for _ in range(asked):
                ours()
            trips = commands.count() / asked
        bare.close()
    answer = Answer("Client and server on one core; one handle is held all the time.", figures)
    cost = answer.figure(HOLDFAST, MICROSECONDS)
    answer.promise("re-entrant pair: commands that Redis saw, for each", f"{trips:.4g}", "0", trips == 0)
    answer.promise(
        "re-entrant pair", f"{cost.median:.1f} µs ({cost.low:.1f}–{cost.high:.1f})", "≤ 8 µs", cost.median <= 8
    )
    return answer
