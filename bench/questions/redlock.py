"""One caller, one name, a majority of five masters: what does it cost against one server, and against a peer?"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from bench.harness import MICROSECONDS, Answer, Scale, race
from bench.peers import HOLDFAST, POTTERY, Pair, pair, present
from bench.server_cost import ServerMeter
from tests.servers.masters import Masters

TITLE: Final = "Redlock on five masters, sync: uncontended acquire + release"

_ONE: Final = "holdfast, one server"
_FIVE: Final = "holdfast, redlock on five"


def ask(scale: Scale) -> Answer:
    kinds, missing = present((POTTERY,))
    with Masters(5) as masters, ExitStack() as stack:
        candidates: dict[str, Pair] = {
            _ONE: stack.enter_context(pair(HOLDFAST, masters.servers[0].url, "one")),
            _FIVE: stack.enter_context(pair(HOLDFAST, masters.url, "five")),
        }
        for kind in kinds:
            urls = " ".join(server.url for server in masters.servers)
            candidates[kind] = stack.enter_context(pair(kind, urls, "theirs"))
        meter = ServerMeter(*(server.client() for server in masters.servers))
        figures = race(candidates, rounds=scale(15, 3), pairs=scale(100, 10), servers=meter)
    answer = Answer(
        "Nothing is pinned: five servers and one client on the machine's cores; µs for one acquire and one release. "
        "The server's figures are those of all five.",
        figures,
        remarks=missing,
        drawn=(MICROSECONDS, "less"),
    )
    what = "Redlock on five masters, pair"
    answer.at_most(f"{what}: against one server", answer.ratio(_FIVE, _ONE, MICROSECONDS), 2.5)
    answer.at_least(f"{what}: faster than pottery's", answer.ratio(POTTERY, _FIVE, MICROSECONDS), 7)
    return answer
