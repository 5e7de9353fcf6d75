"""A helper process's own side: reads ``[what, facts]`` lines, does it in one actor, answers; ends with its input.

It closes and releases nothing at its end: what becomes of its locks then is what the tests are about.
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
    """The deeds of a helper process. Each public method is one."""

    def __init__(self, world: World, keywords: dict[str, Any]) -> None:
        self._client = world.connect(**keywords)
        self._actor: Actor = world.actor()
        self._leases: dict[str, Any] = {}

    async def reach(self) -> None:
        """Once it answers, nothing is left to be started, imported or opened: what is asked next, it does at once."""
        await self._actor.do(self._client.ping)

    async def acquire(self, name: str, timeout: float | None = None, **policy: Any) -> int:
        lock = self._client.lock(name, **policy)
        lease = self._leases[name] = await self._actor.do(lambda: lock.acquire(timeout=timeout))
        return int(lease.token)

    async def try_acquire(self, name: str) -> bool:
        lease = await self._actor.do(self._client.lock(name).try_acquire)
        self._leases[name] = lease
        return lease is not None

    async def release(self, name: str) -> str | None:
        """None, or the reason of the loss."""
        try:
            await self._actor.do(self._leases[name].release)
        except holdfast.LockLost as lost:
            return lost.reason
        return None

    async def look(self, name: str) -> list[Any]:
        lease = self._leases[name]
        return [lease.held, lease.lost_reason]

    async def count(self, name: str, path: str, rounds: int) -> list[int]:
        """Add 1 to the number in a file, ``rounds`` times; the tokens under which it was done."""
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
