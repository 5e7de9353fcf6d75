"""What this process has open, and a baseline to which it must return: how every test counts leaks (invariant I9)."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Callable
from typing import Final

from holdfast._core import lifecycle
from holdfast._runtime.blocking import BLOCKING, run
from tests.support.waiting import eventually, until

#: The thread for users' callbacks ends by itself a second after the last of them, perhaps in a later test.
CALLBACKS: Final = "holdfast-callbacks"
#: An event loop keeps its worker threads for later calls.
_LOOP_WORKERS: Final = "asyncio_"
_BACK_WITHIN: Final = 10.0


def threads() -> list[str]:
    """The names of all threads, without the one for users' callbacks."""
    return [thread.name for thread in threading.enumerate() if thread.name != CALLBACKS]


def new_threads(before: set[threading.Thread]) -> set[threading.Thread]:
    """Those that were not there ``before``. (One that was there may be about to end, from an earlier test.)"""
    return {thread for thread in threading.enumerate() if thread.name != CALLBACKS} - before


def descriptors() -> set[int]:
    """All open descriptors, without the one that lists them."""
    listed = os.listdir("/proc/self/fd")
    return {int(number) for number in listed if os.path.lexists(f"/proc/self/fd/{number}")}


def open_files(*prefixes: str) -> list[str]:
    """What descriptors refer to, if it begins with one of these: a path, ``socket:`` or ``pipe:``."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            pass  # closed meanwhile, such as the one that lists them
    return sorted(target for target in found if target.startswith(prefixes))


class Baseline:
    """What there was when it was made: threads, descriptors and tasks of this process, and ``others`` by name.

    Less is no leak: something of an earlier test, or of a request that was given up, may have been about to end.
    """

    def __init__(self, **others: Callable[[], int]) -> None:
        self._counters = {"descriptors": lambda: len(descriptors()), "tasks": _tasks, **others}
        gc.collect()
        self._threads = set(threading.enumerate())
        self._counts = self._count()

    def leaks(self) -> dict[str, object]:
        """What there is now and was not there, or the counts before and now of what there is more of."""
        gc.collect()
        counts = self._count()
        more: dict[str, object] = {
            name: f"{before} before, {counts[name]} now"
            for name, before in self._counts.items()
            if counts[name] > before
        }
        new = [one.name for one in new_threads(self._threads) if not one.name.startswith(_LOOP_WORKERS)]
        return more | ({"threads": new} if new else {})

    def wait_until_nothing_is_left(self, within: float = _BACK_WITHIN) -> None:
        eventually(lambda: _Empty(self.leaks()), within, "nothing is left")

    async def until_nothing_is_left(self, within: float = _BACK_WITHIN) -> None:
        """The same on an event loop."""
        await until(lambda: _Empty(self.leaks()), within, "nothing is left")

    def _count(self) -> dict[str, int]:
        return {name: count() for name, count in self._counters.items()}


class _Empty:
    """True if there are no leaks; shows them otherwise."""

    def __init__(self, leaks: dict[str, object]) -> None:
        self._leaks = leaks

    def __bool__(self) -> bool:
        return not self._leaks

    def __repr__(self) -> str:
        return f"left: {self._leaks}"


def _tasks() -> int:
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return 0  # no loop runs here


def close_open_clients() -> None:
    """Close every open client of this process: those that outlive their test, as something global refers to them."""
    for core in list(lifecycle._open):
        if core.closed:
            continue
        if core.front is BLOCKING:
            run(core.close())
        else:
            core.begin_close()  # its loop has ended
