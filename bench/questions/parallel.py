"""16 threads with 16 names on one Redis: one Python process beside one JVM with Redisson."""

from __future__ import annotations

from typing import Final

from bench.harness import Answer, Scale
from bench.parallel import CONDITIONS, RATE, THREADS, compare
from bench.peers import HOLDFAST, PYTHON_REDIS_LOCK, REDIS_PY
from bench.peers.jvm import REDISSON
from tests.servers.redis import RedisServer

TITLE: Final = f"Redis: {THREADS} threads, each with a name of its own"


def ask(scale: Scale) -> Answer:
    with RedisServer() as server:
        address = f"{server.host}:{server.port}"
        figures, missing = compare((REDIS_PY, PYTHON_REDIS_LOCK, HOLDFAST), REDISSON, server.url, address, scale)
    answer = Answer(CONDITIONS, figures, remarks=missing, drawn=(RATE, "more"))
    what = f"Redis, {THREADS} threads, {THREADS} names: pairs/s"
    answer.compare(f"{what} against redis-py's", answer.ratio(HOLDFAST, REDIS_PY, RATE))
    answer.compare(f"{what} against Redisson's (JVM)", answer.ratio(HOLDFAST, REDISSON, RATE))
    return answer
