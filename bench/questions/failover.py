"""The master of a Sentinel set dies: how soon can a lock be acquired again?"""

from __future__ import annotations

import time
from typing import Final

import redis

import holdfast
from bench.harness import Answer, Figure, Scale
from tests.servers.redis import RedisServer
from tests.servers.sentinel import SentinelSet

TITLE: Final = "Sentinel: lock service after the death of the master"

_OURS: Final = "holdfast"
_AFTER_PROMOTION: Final = "s from the promotion to the next grant"
_AFTER_DEATH: Final = "s from the death to the next grant"
_GIVE_UP: Final = 30.0


def ask(scale: Scale) -> Answer:
    rounds = [_fail_over() for _ in range(scale(5, 1))]
    figures = [
        Figure(_OURS, _AFTER_PROMOTION, tuple(after for after, _ in rounds)),
        Figure(_OURS, _AFTER_DEATH, tuple(after for _, after in rounds)),
    ]
    answer = Answer(
        "One master, two replicas, three sentinels, down-after 1 s; the master is killed (SIGKILL) while a client "
        "acquires and releases all the time. The promotion is seen in ROLE of the replicas.",
        figures,
    )
    worst = figures[0].high
    answer.promise(
        "Sentinel failover: lock service back after the promotion, worst of all rounds",
        f"{worst:.2f} s",
        "≤ 2 s",
        worst <= 2,
    )
    return answer


def _fail_over() -> tuple[float, float]:
    with SentinelSet() as sentinels, holdfast.connect(sentinels.url, ttl=10, unavailable_after=_GIVE_UP) as locks:
        lock = locks.lock("job")
        lock.acquire().release()
        replicas = [server for server in sentinels.data_nodes if server is not sentinels.master()]
        died = time.monotonic()
        sentinels.kill_master()
        promoted: float | None = None
        granted: float | None = None
        while granted is None or promoted is None:
            if promoted is None and any(_is_master(replica) for replica in replicas):
                promoted = time.monotonic()
            lease = None
            try:
                lease = lock.try_acquire(timeout=0.05)
            except holdfast.EngineUnavailable:
                pass
            if lease is not None:
                granted = granted or time.monotonic()
                lease.release()
            if time.monotonic() - died > _GIVE_UP:
                raise RuntimeError("no failover")
        return max(granted - promoted, 0.0), granted - died


def _is_master(server: RedisServer) -> bool:
    with redis.Redis(port=server.port) as client:
        return bool(client.execute_command("ROLE")[0] == b"master")
