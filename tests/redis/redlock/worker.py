"""One of several processes that compete for one lock: ``python -m tests.redis.redlock.worker API URL FILE ROUNDS``.

Prints "ready", waits for a line, then adds one to the number in FILE, ROUNDS times, each time under the lock.
Prints for each grant: its token, and when it began and ended (CLOCK_BOOTTIME, in seconds).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import holdfast

Grant = tuple[int, float, float]
ACQUIRE_TIMEOUT = 30.0
#: A server that stalls must not miss a release: its part of the lock would stay until the ttl.
REQUEST_TIMEOUT = 6.0


def add_one(file: Path, token: int) -> Grant:
    began = time.clock_gettime(time.CLOCK_BOOTTIME)
    number = int(file.read_text("utf-8"))
    file.write_text(str(number + 1), "utf-8")
    return token, began, time.clock_gettime(time.CLOCK_BOOTTIME)


def work(url: str, file: Path, rounds: int) -> list[Grant]:
    grants = []
    with holdfast.connect(url, request_timeout=REQUEST_TIMEOUT) as locks:
        locks.ping()
        wait_for_the_start()
        for _ in range(rounds):
            with locks.lock("hot").acquire(timeout=ACQUIRE_TIMEOUT) as lease:
                grants.append(add_one(file, lease.token))
    return grants


async def work_async(url: str, file: Path, rounds: int) -> list[Grant]:
    grants = []
    async with holdfast.aio.connect(url, request_timeout=REQUEST_TIMEOUT) as locks:
        await locks.ping()
        wait_for_the_start()
        for _ in range(rounds):
            async with await locks.lock("hot").acquire(timeout=ACQUIRE_TIMEOUT) as lease:
                grants.append(add_one(file, lease.token))
    return grants


def wait_for_the_start() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    api, where, what, count = sys.argv[1:]
    arguments = (where, Path(what), int(count))
    print(json.dumps(asyncio.run(work_async(*arguments)) if api == "async" else work(*arguments)))
