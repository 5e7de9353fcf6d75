"""An async worker: when its lock is taken away, the body is cancelled, and the worker goes on with the next job.

``python examples/async_worker.py``
"""

from __future__ import annotations

import asyncio

import holdfast


async def work(locks: holdfast.aio.AsyncClient, job: str, seconds: float, begun: asyncio.Event) -> str:
    """Do one job under its lock, and say how it ended."""
    try:
        async with locks.lock(f"job:{job}", ttl=3, timeout=5) as lease:
            print(f"{job}: begun, with token {lease.token}")
            begun.set()
            await asyncio.sleep(seconds)  # cancelled here when the lease is lost
    except holdfast.LockLost as loss:
        return f"dropped ({loss.reason})"
    return "done"


async def main() -> None:
    async with holdfast.aio.connect() as locks:
        begun = asyncio.Event()
        long_job = asyncio.create_task(work(locks, "long", 60, begun))
        await begun.wait()
        await locks.break_("job:long")  # an operator decides that it has taken long enough
        print("long:", await long_job)
        print("short:", await work(locks, "short", 0.01, begun))


if __name__ == "__main__":
    asyncio.run(main())
