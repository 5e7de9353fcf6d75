"""200 tasks, each with a name of its own, in one event loop: how much does one pipelined connection help?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import redis
import redis.asyncio

import holdfast.aio
from bench.floor import BarePipe, packed_pair
from bench.harness import Answer, Scale, interleave
from bench.mutexes import HOLDFAST, TTL
from bench.placement import redis_apart
from tests.servers.redis import RedisServer

TITLE: Final = "Redis, asyncio: 200 tasks on 200 names"

_TASKS: Final = 200
_RATE: Final = "pairs a second"
_CPU: Final = "CPU of the client, µs a pair"
_FLOOR: Final = "floor: bare pipelining protocol"
_REDIS_ASYNCIO: Final = "redis.asyncio Lock"

Worker = Callable[[int], Awaitable[None]]


def ask(scale: Scale) -> Answer:
    with redis_apart() as server, asyncio.Runner() as runner:
        candidates = _Candidates(server, runner, turns=scale(20, 4))
        runner.run(candidates.open())
        try:
            figures = interleave(candidates.rounds(), rounds=scale(9, 3))
        finally:
            runner.run(candidates.close())
    answer = Answer(
        "One process on one core, the server on another; all tasks acquire and release in a loop; no body.",
        figures,
        drawn=(_RATE, "more"),
    )
    ratio = answer.ratio(HOLDFAST, _REDIS_ASYNCIO, _RATE)
    answer.promise(
        "Redis, async, 200 tasks: pairs/s against redis.asyncio's Lock", str(ratio), "≥ 6×", ratio.value >= 6
    )
    return answer


class _Candidates:
    """The candidates on one loop. A round is ``turns`` pairs in each task."""

    def __init__(self, server: RedisServer, runner: asyncio.Runner, turns: int) -> None:
        self._server = server
        self._runner = runner
        self._turns = turns

    async def open(self) -> None:
        server = self._server
        self._locks = holdfast.aio.connect(server.url, ttl=TTL)
        self._ours = [self._locks.lock(f"ours:{number}") for number in range(_TASKS)]
        self._peer = redis.asyncio.Redis(port=server.port, max_connections=2 * _TASKS)
        self._theirs = [self._peer.lock(f"theirs:{number}", timeout=TTL) for number in range(_TASKS)]
        loop = asyncio.get_running_loop()
        _, self._pipe = await loop.create_connection(BarePipe, server.host, server.port)
        with redis.Redis(port=server.port) as plain:
            self._packed = [packed_pair(plain, f"floor:{number}") for number in range(_TASKS)]
        for worker in self._workers().values():
            await self._all(worker)  # connections and scripts are made before the clock starts

    async def close(self) -> None:
        self._pipe.close()
        await self._locks.close()
        await self._peer.aclose()

    def rounds(self) -> dict[str, Callable[[], Mapping[str, float]]]:
        return {name: self._round(worker) for name, worker in self._workers().items()}

    def _workers(self) -> dict[str, Worker]:
        return {_FLOOR: self._work_bare, _REDIS_ASYNCIO: self._work_theirs, HOLDFAST: self._work_ours}

    def _round(self, worker: Worker) -> Callable[[], Mapping[str, float]]:
        def measure() -> Mapping[str, float]:
            pairs = _TASKS * self._turns
            cpu, start = time.process_time(), time.perf_counter()
            self._runner.run(self._all(worker))
            elapsed, cpu = time.perf_counter() - start, time.process_time() - cpu
            return {_RATE: pairs / elapsed, _CPU: cpu / pairs * 1e6}

        return measure

    async def _all(self, worker: Worker) -> None:
        await asyncio.gather(*(worker(number) for number in range(_TASKS)))

    async def _work_bare(self, number: int) -> None:
        call: Callable[[bytes], Any] = self._pipe.call
        take, give = self._packed[number]
        for _ in range(self._turns):
            await call(take)
            await call(give)

    async def _work_theirs(self, number: int) -> None:
        lock = self._theirs[number]
        for _ in range(self._turns):
            await lock.acquire()
            await lock.release()

    async def _work_ours(self, number: int) -> None:
        lock = self._ours[number]
        for _ in range(self._turns):
            await (await lock.acquire()).release()
