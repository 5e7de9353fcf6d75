"""One caller, one name, a majority of five masters: what does it cost against one server, and against a peer?"""

from __future__ import annotations

from typing import Any, Final

import redis
from pottery import Redlock

import holdfast
from bench.harness import MICROSECONDS, Answer, Scale, race
from bench.mutexes import TTL
from tests.servers.masters import Masters

TITLE: Final = "Redlock on five masters, sync: uncontended acquire + release"

_ONE: Final = "holdfast, one server"
_FIVE: Final = "holdfast, redlock on five"
_POTTERY: Final = "pottery Redlock on the same five"


def ask(scale: Scale) -> Answer:
    with (
        Masters(5) as masters,
        holdfast.connect(masters.url, ttl=TTL) as majority,
        holdfast.connect(masters.servers[0].url, ttl=TTL) as single,
    ):
        ours, one = majority.lock("ours"), single.lock("one")
        clients: set[Any] = {redis.Redis(port=server.port) for server in masters.servers}
        theirs = Redlock(key="theirs", masters=clients, auto_release_time=TTL)

        def pottery() -> None:
            theirs.acquire()
            theirs.release()

        candidates = {
            _ONE: lambda: one.acquire().release(),
            _FIVE: lambda: ours.acquire().release(),
            _POTTERY: pottery,
        }
        figures = race(candidates, rounds=scale(21, 3), pairs=scale(100, 10))
        for client in clients:
            client.close()
    answer = Answer(
        "Nothing is pinned: five servers and one client on the machine's cores; µs for one acquire and one release.",
        figures,
        drawn=(MICROSECONDS, "less"),
    )
    price = answer.ratio(_FIVE, _ONE, MICROSECONDS)
    faster = answer.ratio(_POTTERY, _FIVE, MICROSECONDS)
    answer.promise("Redlock on five masters, pair: against one server", str(price), "≤ 3×", price.value <= 3)
    answer.promise("Redlock on five masters, pair: faster than pottery", str(faster), "≥ 5×", faster.value >= 5)
    return answer
