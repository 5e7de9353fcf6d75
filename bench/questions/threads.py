"""Eight threads of one process contend for one name: does the process hand it over by itself?"""

from __future__ import annotations

from functools import partial
from typing import Final

from bench.contention import RATE, contended
from bench.harness import Answer, Scale, interleave
from bench.peers import HOLDFAST, PYTHON_REDIS_LOCK, REDIS_PY, present
from bench.server_cost import ServerMeter
from bench.workers import Workers
from tests.servers.redis import RedisServer

TITLE: Final = "Redis: eight threads of one process, one name"

_THREADS: Final = 8


def ask(scale: Scale) -> Answer:
    kinds, missing = present((REDIS_PY, PYTHON_REDIS_LOCK, HOLDFAST))
    seconds = scale(2000, 500) / 1000
    with RedisServer() as server, Workers(1) as workers:
        meter = ServerMeter(server.client())
        candidates = {
            kind: partial(contended, kind, server.url, workers, seconds, threads=_THREADS, server=meter)
            for kind in kinds
        }
        figures = interleave(candidates, rounds=scale(3, 1))
    answer = Answer(
        f"One process of {_THREADS} threads; no body.",
        [figure for figure in figures if figure.measure != "least share"],  # there is one process
        remarks=missing,
        drawn=(RATE, "more"),
    )
    ratio = answer.ratio(HOLDFAST, REDIS_PY, RATE)
    answer.at_least(f"Redis, {_THREADS} threads, one name: acquisitions/s against redis-py's", ratio, 6, 10)
    return answer
