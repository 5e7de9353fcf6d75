"""One of several processes that compete for the same locks.

``python -m tests.redis.cluster.contender URL DIRECTORY API NUMBER``

Each caller acquires one name after the other, adds a number of its own to that name's register, and releases the name,
until the process reads a line from stdin. Then the process prints as JSON which numbers were acknowledged, and when
each name was held.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import random
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import holdfast
from holdfast.testing.conformance.opening import Api, Source
from tests.support.register import Register

NAMES: Final = 200
CALLERS: Final = 4
TTL: Final = 1.2
#: Errors that are expected while servers die. Any other error is a bug and ends the process.
_EXPECTED: Final = (holdfast.AcquireTimeout, holdfast.EngineUnavailable, holdfast.OutcomeUnknown, holdfast.StaleToken)


def name_of(number: int) -> str:
    return f"job-{number}"


@dataclass
class Record:
    """The grants and errors of this process."""

    numbers: dict[str, list[int]] = field(default_factory=dict)
    #: Name, token, when it was granted, when the holder released it, and whether the release reported a loss.
    holds: list[tuple[str, int, float, float, bool]] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)


class Contender:
    def __init__(self, url: str, directory: Path, api: Api, number: int) -> None:
        self._client = Source(url).open(api, ttl=TTL, unavailable_after=1.0)
        self._directory = directory
        self._numbers = iter(range(number, 10**9, 4))
        self._dice = random.Random(number)
        self.record = Record()
        self.over = threading.Event()

    def listen(self) -> None:
        sys.stdin.readline()
        self.over.set()

    async def work(self) -> None:
        """One caller. With the sync API it runs on a thread of its own, where no await suspends it."""
        while not self.over.is_set():
            # Small numbers are drawn more often, so that callers compete for their names.
            name = name_of(int(NAMES * self._dice.random() ** 2))
            try:
                lease = await _done(self._client.lock(name).acquire(timeout=2.0))
                await self._hold(name, lease)
            except _EXPECTED as error:
                self.record.met[type(error).__name__] += 1

    async def _hold(self, name: str, lease: Any) -> None:
        granted, lost = time.monotonic(), False
        try:
            register, number = Register(self._directory / name, fenced=True), next(self._numbers)
            numbers = register.load(lease)
            await self._linger()
            register.store(lease, numbers | {number})
            self.record.numbers.setdefault(name, []).append(number)
        finally:
            ended = time.monotonic()
            try:
                await _done(lease.release())
            except holdfast.LockLost:
                lost = True
            finally:
                self.record.holds.append((name, lease.token, granted, ended, lost))

    async def _linger(self) -> None:
        """Sometimes holds for so long that the lease must be renewed."""
        if self._dice.random() < 0.03:
            await _done(self._sleep(TTL / 2))

    def _sleep(self, seconds: float) -> Any:
        return asyncio.sleep(seconds) if isinstance(self._client, holdfast.aio.AsyncClient) else time.sleep(seconds)

    async def close(self) -> None:
        await _done(self._client.close())


async def _done(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


def main() -> None:
    api: Api = "sync" if sys.argv[3] == "sync" else "async"
    contender = Contender(sys.argv[1], Path(sys.argv[2]), api, int(sys.argv[4]))
    print("ready", flush=True)
    threading.Thread(target=contender.listen, daemon=True).start()
    if api == "sync":
        threads = [threading.Thread(target=lambda: _run(contender.work())) for _ in range(CALLERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        _run(contender.close())
    else:
        asyncio.run(_together(contender))
    print(json.dumps(contender.record.__dict__), flush=True)


async def _together(contender: Contender) -> None:
    await asyncio.gather(*(contender.work() for _ in range(CALLERS)))
    await contender.close()


def _run(coroutine: Any) -> None:
    """Runs a coroutine to its end without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("a blocking call was suspended")


if __name__ == "__main__":
    main()
