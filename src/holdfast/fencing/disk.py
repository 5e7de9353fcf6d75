"""Disk work for an event loop, on separate threads. It always runs to its end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

# Not the loop's default executor: all of its threads may be waiting for the guard that this work is for.
_THREADS: Final = 4
_executor: ThreadPoolExecutor | None = None


async def run(work: Callable[[], None]) -> None:
    """Run ``work`` without blocking the loop. If cancelled, CancelledError is raised only after ``work`` has ended.

    The caller holds a lock that must outlive the work, and a thread cannot be interrupted. The work is one small write.
    """
    global _executor
    if _executor is None:
        _executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="holdfast-fence")
    done = asyncio.get_running_loop().run_in_executor(_executor, work)
    try:
        await asyncio.shield(done)
    except asyncio.CancelledError:
        while not done.done():
            try:
                await asyncio.wait((done,))
            except asyncio.CancelledError:
                continue  # cancelled again: the first one is raised below
        done.exception()  # retrieved, so that asyncio does not log it as never retrieved
        raise


def _after_fork_in_child() -> None:
    global _executor
    _executor = None  # its threads stayed in the parent


os.register_at_fork(after_in_child=_after_fork_in_child)
