"""1,000 to 50,000 locks held by one client: what does keeping them cost?"""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

import redis

import holdfast
from bench import workers as worker_process
from bench.harness import Answer, Curve, Figure, Scale
from bench.peers import HOLDFAST
from bench.progress import step
from bench.server_cost import ServerMeter
from bench.workers import Workers
from tests.servers.redis import RedisServer

TITLE: Final = "Redis: 1,000 to 50,000 held leases, renewed by one client"

_SIZES: Final = (1_000, 10_000, 50_000)
_TTL: Final = 30.0
_FLOOR: Final = "floor: PEXPIRE of as many keys in one pipeline"
_CPU: Final = "client's CPU, % of one core"
_EACH: Final = "client's CPU, µs a renewal"
_SERVER: Final = "server's CPU, % of one core"
_MEMORY: Final = "client's memory, KiB a lease"
_SERVER_MEMORY: Final = "server's memory, KiB a lease"
_PROBE: Final = "bench-probe"
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class Kept(NamedTuple):
    """What the holder measured while it only held the locks."""

    seconds: float
    cpu: float
    server_cpu: float
    memory: float
    server_memory: float
    threads: int
    connections: int
    lost: int
    least_remaining: float


def ask(scale: Scale) -> Answer:
    sizes = (100, 1_000) if scale.quick else _SIZES
    ttl = float(scale(int(_TTL), 6))
    kept: dict[int, Kept] = {}
    figures: list[Figure] = []
    with RedisServer() as server:
        for size in sizes:
            step(f"{size:,} leases")
            with Workers(1) as workers:  # a new process: memory that it has used before would hide what it uses now
                (kept[size],) = workers.work(_keep, [(server.url, size, ttl)])
                (floor,) = workers.work(_extend_blindly, [(server.url, size)])
            server.flush()
            figures += _figures(size, kept[size], floor, ttl / 3)
    most = sizes[-1]
    answer = Answer(
        f"Names held by one process that sleeps, ttl {ttl:g} s; watched for {kept[most].seconds:.0f} s, from after the "
        f"first renewals. {kept[most].least_remaining:.1f} s remained at least.",
        figures,
        curves=[Curve(_EACH, "leases", "less")],
    )
    _add_targets(answer, most, kept)
    return answer


def _figures(size: int, kept: Kept, floor: float, cycle: float) -> list[Figure]:
    renewals = size * kept.seconds / cycle
    return [
        Figure(_FLOOR, _CPU, (floor * size / cycle * 100,), size),
        Figure(_FLOOR, _EACH, (floor * 1e6,), size),
        Figure(HOLDFAST, _CPU, (kept.cpu / kept.seconds * 100,), size),
        Figure(HOLDFAST, _EACH, (kept.cpu / renewals * 1e6,), size),
        Figure(HOLDFAST, _SERVER, (kept.server_cpu / kept.seconds * 100,), size),
        Figure(HOLDFAST, _MEMORY, (kept.memory / 1024,), size),
        Figure(HOLDFAST, _SERVER_MEMORY, (kept.server_memory / 1024,), size),
    ]


def _add_targets(answer: Answer, most: int, kept: dict[int, Kept]) -> None:
    what, worst = f"{most:,} held leases", kept[most]
    answer.at_most(f"{what}: memory of the client, each", worst.memory / 1024, 2, unit=" KiB")
    answer.at_most(
        f"{what}: CPU of the client at ttl {_TTL:g}", answer.figure(HOLDFAST, _CPU, most).median, 10, unit=" %"
    )
    answer.promise(f"{what}: lost", str(worst.lost), "0", worst.lost == 0)
    answer.promise(f"{what}: threads of the process, main included", str(worst.threads), "≤ 2", worst.threads <= 2)
    answer.promise(f"{what}: connections", str(worst.connections), "≤ 2", worst.connections <= 2)
    few = min(kept)
    first, last = (answer.figure(HOLDFAST, _EACH, size).median for size in (few, most))
    answer.promise(
        f"client's CPU for a renewal, {most:,} leases against {few:,}",
        f"{last:.1f} µs / {first:.1f} µs = {last / first:.2f}×",
        "≤ 1.25×: does not grow",
        last <= 1.25 * first,
    )


def _keep(url: str, leases: int, ttl: float) -> Kept:
    """In a worker: acquire all names, wait for the first cycle of renewals, then measure."""
    worker_process.ready()
    others = _threads() - 1  # of the process pool, not of the client
    with redis.Redis.from_url(url, client_name=_PROBE) as probe, holdfast.connect(url, ttl=ttl) as locks:
        locks.lock("first").acquire().release()
        memory, server_memory = _memory(), _server_memory(probe)
        held = [locks.lock(f"lease:{number}").acquire() for number in range(leases)]
        memory, server_memory = _memory() - memory, _server_memory(probe) - server_memory
        time.sleep(ttl / 2)
        threads, connections = _threads() - others, _connections(probe)
        meter = ServerMeter(probe)
        started, cpu = time.monotonic(), time.process_time()
        time.sleep(2 * ttl / 3)
        seconds, cpu = time.monotonic() - started, time.process_time() - cpu
        server_cpu = meter.spent().cpu
        lost, least = sum(not lease.held for lease in held), min(lease.remaining for lease in held)
    return Kept(seconds, cpu, server_cpu, memory / leases, server_memory / leases, threads, connections, lost, least)


def _extend_blindly(url: str, keys: int) -> float:
    """In a worker: CPU seconds for each key, in a pipeline of redis-py that does not check the keys' owner."""
    worker_process.ready()
    with redis.Redis.from_url(url) as client:
        client.mset({f"floor:{number}": "1" for number in range(keys)})
        spent = []
        for _ in range(3):
            start = time.process_time()
            with client.pipeline(transaction=False) as pipeline:
                for number in range(keys):
                    pipeline.pexpire(f"floor:{number}", 30_000)
                pipeline.execute()
            spent.append(time.process_time() - start)
    return min(spent) / keys


def _memory() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text("utf-8").split()[1]) * _PAGE


def _server_memory(probe: Any) -> int:
    return int(probe.info("memory")["used_memory"])


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _connections(probe: Any) -> int:
    return sum(client["name"] != _PROBE for client in probe.client_list())
