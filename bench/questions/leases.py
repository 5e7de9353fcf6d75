"""10,000 locks held by one client: what does renewing them cost?"""

from __future__ import annotations

import os
import time
from typing import Any, Final, NamedTuple

import redis

import holdfast
from bench import workers as worker_process
from bench.harness import Answer, Figure, Scale
from bench.mutexes import HOLDFAST
from bench.workers import Workers
from tests.servers.redis import RedisServer

TITLE: Final = "Redis: 10,000 held leases, renewed by one client"

_FLOOR: Final = "floor: PEXPIRE of as many keys in one pipeline"
_CPU: Final = "CPU, % of one core"
_SERVER: Final = "server's CPU, %"
_EACH: Final = "client µs a renewal"
_PROBE: Final = "bench-probe"


class Kept(NamedTuple):
    """What the holder measured while it only held the locks."""

    seconds: float
    cpu: float
    server_cpu: float
    threads: int
    connections: int
    lost: int
    least_remaining: float


def ask(scale: Scale) -> Answer:
    leases, ttl = scale(10_000, 1_000), float(scale(30, 6))
    cycle = ttl / 3
    with RedisServer() as server, Workers(1) as workers:
        (kept,) = workers.work(_keep, [(server.url, leases, ttl, 2 * cycle)])
        (floor,) = workers.work(_extend_blindly, [(server.url, leases)])
    renewals = leases * kept.seconds / cycle
    share = kept.cpu / kept.seconds * 100
    figures = [
        Figure(_FLOOR, _CPU, (floor * leases / cycle * 100,)),
        Figure(_FLOOR, _EACH, (floor * 1e6,)),
        Figure(HOLDFAST, _CPU, (share,)),
        Figure(HOLDFAST, _EACH, (kept.cpu / renewals * 1e6,)),
        Figure(HOLDFAST, _SERVER, (kept.server_cpu / kept.seconds * 100,)),
    ]
    answer = Answer(
        f"{leases:,} names, ttl {ttl:g} s, held by one process that sleeps; watched for {kept.seconds:.0f} s, "
        f"from after the first renewals. {kept.lost} were lost; {kept.least_remaining:.1f} s remained at least.",
        figures,
    )
    what = f"{leases:,} held leases"
    answer.promise(f"{what}: lost", str(kept.lost), "0", kept.lost == 0)
    answer.promise(f"{what}: threads of the process, main included", str(kept.threads), "≤ 2", kept.threads <= 2)
    answer.promise(f"{what}: connections", str(kept.connections), "≤ 2", kept.connections <= 2)
    answer.promise(f"{what}: CPU of the client at ttl {ttl:g}", f"{share:.2f} % of a core", "≤ 5 %", share <= 5)
    return answer


def _keep(url: str, leases: int, ttl: float, watched: float) -> Kept:
    """In a worker: acquire all names, wait for the first cycle of renewals, then measure."""
    worker_process.ready()
    others = _threads() - 1  # of the process pool, not of the client
    with redis.Redis.from_url(url, client_name=_PROBE) as probe, holdfast.connect(url, ttl=ttl) as locks:
        held = [locks.lock(f"lease:{number}").acquire() for number in range(leases)]
        time.sleep(ttl / 2)
        threads, connections = _threads() - others, _connections(probe)
        server_cpu = _server_cpu(probe)
        started, cpu = time.monotonic(), time.process_time()
        time.sleep(watched)
        seconds, cpu = time.monotonic() - started, time.process_time() - cpu
        server_cpu = _server_cpu(probe) - server_cpu
        lost, least = sum(not lease.held for lease in held), min(lease.remaining for lease in held)
    return Kept(seconds, cpu, server_cpu, threads, connections, lost, least)


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


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _connections(probe: Any) -> int:
    return sum(client["name"] != _PROBE for client in probe.client_list())


def _server_cpu(probe: Any) -> float:
    used = probe.info("cpu")
    return float(used["used_cpu_user"] + used["used_cpu_sys"])
