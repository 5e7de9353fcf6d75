"""The program of a helper process: reads commands as ``[name, arguments]`` lines, runs each in one actor, and answers.

It ends with its input, and closes and releases nothing then: the cases test what happens to its locks.
"""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from pathlib import Path
from typing import Any

import holdfast
from holdfast.testing.conformance.actors import Actor
from holdfast.testing.conformance.opening import Source
from holdfast.testing.conformance.world import World


class Child:
    """The commands of a helper process. Each public method is one."""

    def __init__(self, world: World, keywords: dict[str, Any]) -> None:
        self._client = world.connect(**keywords)
        self._actor: Actor = world.actor()
        self._leases: dict[str, Any] = {}

    async def reach(self) -> None:
        """Connect. After its answer everything is imported and opened, so that later commands take no extra time."""
        await self._actor.do(self._client.ping)

    async def acquire(self, name: str, timeout: float | None = None, mode: str = "exclusive", **policy: Any) -> int:
        """``mode``: as in ``Holder.mode``. For permits, ``policy`` says how many the semaphore has."""
        lock = self._wanted(name, mode, policy)
        lease = self._leases[name] = await self._actor.do(lambda: lock.acquire(timeout=timeout))
        return int(lease.token)

    def _wanted(self, name: str, mode: str, policy: dict[str, Any]) -> Any:
        if mode == "permits":
            return self._client.semaphore(name, **policy)
        if mode == "exclusive":
            return self._client.lock(name, **policy)
        rwlock = self._client.rwlock(name, **policy)
        return rwlock.read if mode == "read" else rwlock.write

    async def try_acquire(self, name: str) -> bool:
        lease = await self._actor.do(self._client.lock(name).try_acquire)
        self._leases[name] = lease
        return lease is not None

    async def release(self, name: str) -> str | None:
        """None, or the loss reason."""
        try:
            await self._actor.do(self._leases[name].release)
        except holdfast.LockLost as lost:
            return lost.reason
        return None

    async def look(self, name: str) -> list[Any]:
        lease = self._leases[name]
        return [lease.held, lease.lost_reason]

    async def count(self, name: str, path: str, rounds: int) -> list[int]:
        """Add 1 to the number in a file, ``rounds`` times. Returns the tokens of the leases."""
        file = Path(path)

        def add(lease: Any) -> int:
            file.write_text(str(int(file.read_text()) + 1))
            return int(lease.token)

        return [await self._actor.within(self._client.lock(name), add) for _ in range(rounds)]


async def main(source: dict[str, Any], api: Any, keywords: dict[str, Any]) -> None:
    child = Child(World(Source(**source), api), keywords)
    while line := await asyncio.to_thread(sys.stdin.readline):
        what, facts = json.loads(line)
        try:
            answer = {"value": await getattr(child, what)(**facts)}
        except Exception:
            answer = {"raised": traceback.format_exc()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*json.loads(sys.argv[1])))
