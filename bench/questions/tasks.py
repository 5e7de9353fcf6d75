"""1 to 1,000 tasks, each with a name of its own, in one event loop: how much does one pipelined connection help?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Final

from bench.floor import BarePipe, packed_pair
from bench.harness import Answer, Curve, Figure, Round, Scale, interleave
from bench.peers import HOLDFAST, REDIS_ASYNCIO, VALKEY_GLIDE, AsyncPair, async_pairs, present
from bench.placement import redis_apart
from bench.server_cost import ServerMeter
from tests.servers.redis import RedisServer

TITLE: Final = "Redis, asyncio: 1 to 1,000 tasks, each with a name of its own"

_SIZES: Final = (1, 10, 50, 200, 1_000)
#: The size that the target is about, with more rounds.
_MAIN: Final = 200
_RATE: Final = "pairs/s"
_CPU: Final = "client's CPU, µs a pair"
_SERVER_CPU: Final = "server's CPU, µs a pair"
_COMMANDS: Final = "commands a pair"
_FLOOR: Final = "floor: bare pipelining protocol"


def ask(scale: Scale) -> Answer:
    kinds, missing = present((REDIS_ASYNCIO, VALKEY_GLIDE, HOLDFAST))
    figures: list[Figure] = []
    with redis_apart() as server, asyncio.Runner() as runner:
        meter = ServerMeter(server.client())
        for size in _SIZES:
            candidates = _Candidates(server, kinds, size, runner, meter, pairs=scale(2_000, 100))
            runner.run(candidates.open())
            try:
                figures += interleave(candidates.rounds(), scale(9 if size == _MAIN else 3, 1), size)
            finally:
                runner.run(candidates.close())
    answer = Answer(
        "One process on one core, the server on another; all tasks acquire and release in a loop; no body.",
        figures,
        remarks=missing,
        curves=[Curve(_RATE, "tasks", "more"), Curve(_CPU, "tasks", "less")],
    )
    ratio = answer.ratio(HOLDFAST, REDIS_ASYNCIO, _RATE, _MAIN)
    answer.at_least(f"Redis, async, {_MAIN} tasks: pairs/s against redis.asyncio's Lock", ratio, 9.5, 11)
    most, main = (answer.figure(HOLDFAST, _CPU, size).median for size in (_SIZES[-1], _MAIN))
    answer.promise(
        f"Redis, async: client's CPU for a pair, {_SIZES[-1]:,} tasks against {_MAIN}",
        f"{most:.1f} µs / {main:.1f} µs = {most / main:.2f}×",
        "≤ 1.25×: does not grow",
        most <= 1.25 * main,
    )
    return answer


class _Candidates:
    """The candidates with ``size`` tasks on one loop. A round is about ``pairs`` pairs in all tasks together."""

    def __init__(
        self, server: RedisServer, kinds: list[str], size: int, runner: asyncio.Runner, meter: ServerMeter, pairs: int
    ) -> None:
        self._server, self._kinds, self._size = server, kinds, size
        self._runner, self._meter = runner, meter
        self._turns = max(2, pairs // size)
        self._stack = AsyncExitStack()
        self._pairs: dict[str, list[AsyncPair]] = {}

    async def open(self) -> None:
        server = self._server
        loop = asyncio.get_running_loop()
        _, pipe = await loop.create_connection(BarePipe, server.host, server.port)
        self._stack.callback(pipe.close)
        client = server.client()
        self._pairs[_FLOOR] = [pipe.pair(*packed_pair(client, f"floor:{number}")) for number in range(self._size)]
        for kind in self._kinds:
            names = [f"{kind}:{number}" for number in range(self._size)]
            self._pairs[kind] = await self._stack.enter_async_context(async_pairs(kind, server.url, names))
        for pairs in self._pairs.values():
            await self._all(pairs, 1)  # connections and scripts are made before the clock starts

    async def close(self) -> None:
        await self._stack.aclose()

    def rounds(self) -> dict[str, Round]:
        return {name: self._round(pairs) for name, pairs in self._pairs.items()}

    def _round(self, pairs: list[AsyncPair]) -> Round:
        def measure() -> Mapping[str, float]:
            done = self._size * self._turns
            self._meter.start()
            cpu, start = time.process_time(), time.perf_counter()
            self._runner.run(self._all(pairs, self._turns))
            elapsed, cpu = time.perf_counter() - start, time.process_time() - cpu
            spent = self._meter.spent()
            return {
                _RATE: done / elapsed,
                _CPU: cpu / done * 1e6,
                _SERVER_CPU: spent.cpu / done * 1e6,
                _COMMANDS: spent.commands / done,
            }

        return measure

    async def _all(self, pairs: list[AsyncPair], turns: int) -> None:
        await asyncio.gather(*(_repeat(pair, turns) for pair in pairs))


async def _repeat(pair: AsyncPair, turns: int) -> None:
    for _ in range(turns):
        await pair()
