"""A process that adds numbers to two registers under one lock, a fenced and an unfenced one, until its stdin ends.

``with Workers(url, directory, ["sync", "async"]) as workers:`` starts one process for each API. The directory contains
their journals and the registers.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import holdfast
from holdfast._runtime import clock
from holdfast.testing.conformance.actors import settled
from holdfast.testing.conformance.opening import Api, Source
from tests.support.history import Failure, Hold, Journal
from tests.support.register import Register

ROOT: Final = Path(__file__).parents[3]
NAME: Final = "ledger"
#: Shorter than any failover: the lock of a dead process has expired on the new master by then.
TTL: Final = 1.0
_WORK: Final = 0.002
_REST: Final = 0.005
_STEP: Final = 1_000_000


def registers(directory: Path) -> tuple[Register, Register]:
    """The fenced and the unfenced register."""
    return Register(directory / "fenced", fenced=True), Register(directory / "unfenced", fenced=False)


def add(register: Register, lease: Any, number: int) -> None:
    numbers = register.load(lease)
    time.sleep(_WORK)
    register.store(lease, numbers | {number})


class Workers:
    """Worker processes. The end of the block ends them, and fails if a process had an unexpected error."""

    def __init__(self, url: str, directory: Path, apis: Sequence[Api]) -> None:
        self.journals = [Journal(directory / f"journal-{place}") for place, _ in enumerate(apis)]
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.redis.failover.worker", api, url, str(directory), str(place)],
                stdin=subprocess.PIPE,
                cwd=ROOT,
            )
            for place, api in enumerate(apis)
        ]

    def holds(self) -> list[Hold]:
        return [hold for journal in self.journals for hold in journal.holds()]

    def failures(self) -> list[Failure]:
        return [failure for journal in self.journals for failure in journal.failures()]

    def stop(self) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        assert [process.wait(20) for process in self._processes] == [0] * len(self._processes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in self._processes:
            with process:  # closes the pipe
                process.kill()


async def work(source: Source, api: Api, directory: Path, place: int, ended: threading.Event) -> None:
    journal = Journal(directory / f"journal-{place}")
    locks = source.open(api, ttl=TTL)
    for number in count(place * _STEP):
        if ended.is_set():
            break
        await asyncio.sleep(_REST)
        began = clock.now()
        try:
            lease = await settled(locks.lock(NAME).acquire(timeout=5.0))
        except (holdfast.EngineUnavailable, holdfast.AcquireTimeout) as error:
            journal.write(Failure(type(error).__name__, began, clock.now()))
        else:
            journal.write(await use(lease, number, began, directory))
    await settled(locks.close())


async def use(lease: Any, number: int, began: float, directory: Path) -> Hold:
    """Add ``number`` to both registers, and release."""
    acquired = clock.now()
    loss, added = None, None
    fenced, unfenced = registers(directory)
    try:
        add(fenced, lease, number)
    except holdfast.StaleToken:
        pass  # refused, so not acknowledged
    else:
        added = number
    add(unfenced, lease, number)
    ended = clock.now()
    try:
        await settled(lease.release())
    except holdfast.LockLost as lost:
        loss = lost.reason
    except holdfast.OutcomeUnknown:
        pass  # the release was not answered; the lease had expired
    return Hold(lease.owner, lease.token, began, acquired, ended, loss, added)


def main(api: Api, url: str, directory: str, place: str) -> None:
    ended = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    asyncio.run(work(Source(url), api, Path(directory), int(place), ended))


if __name__ == "__main__":
    main(*sys.argv[1:])  # type: ignore[arg-type]
