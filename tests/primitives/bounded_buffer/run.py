"""Three producers and three consumers in six processes, of which some are killed and one is frozen past its lease."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

import holdfast
from tests.primitives.bounded_buffer.buffer import Buffer
from tests.primitives.bounded_buffer.history import Event, Findings, Kind, examine
from tests.primitives.bounded_buffer.worker import LAST, events, failures, freeze_request
from tests.support.processes import state
from tests.support.waiting import eventually

ROOT: Final = Path(__file__).parents[3]
NAME: Final = "buffer"
PRODUCERS = CONSUMERS = 3
#: A run of any length has ended by then, in seconds.
_LONGEST: Final = 580.0


class Fault(NamedTuple):
    """``kind`` happens to ``actor`` when this part of the items was taken."""

    part: float
    kind: Kind
    actor: str


#: A consumer and a producer are killed, and a consumer is frozen while it holds the lock.
ALL_FAULTS: Final = (Fault(0.2, Kind.KILLED, "c0"), Fault(0.4, Kind.FROZEN, "c1"), Fault(0.6, Kind.KILLED, "p0"))
FEW_FAULTS: Final = (Fault(0.3, Kind.KILLED, "c0"), Fault(0.5, Kind.FROZEN, "c1"))


class Report(NamedTuple):
    findings: Findings
    taken: int  #: how many items
    failures: list[str]  #: what operations have raised
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.taken} items in {self.seconds:.0f} s; {len(self.failures)} operations have failed; longest wait "
            f"beside an item {self.findings.longest_wait:.2f} s"
        )


class Worker:
    """A process, and the file that it writes. ``items``: those that it produces; None: it consumes."""

    def __init__(self, run: Run, actor: str, items: range | None = None) -> None:
        self.actor, self.items = actor, items
        self.file = run.directory / f"{actor}.journal"
        bounds = [] if items is None else [str(items.start), str(items.stop)]
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.primitives.bounded_buffer.worker"),
                *(run.url, str(run.ttl), NAME, str(self.file), actor, *bounds),
            ],
            cwd=ROOT,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(20)

    def left(self) -> range:
        """The items that it has not begun to put."""
        assert self.items is not None
        begun = [event.item for event in events(self.file) if event.kind is Kind.PUTTING and event.item is not None]
        return range(max(begun, default=self.items.start - 1) + 1, self.items.stop)


class Run:
    """``with Run(…) as run: report = run.complete(faults)``."""

    def __init__(self, url: str, directory: Path, items: int, ttl: float) -> None:
        self.url, self.directory, self.items, self.ttl = url, directory, items, ttl
        self._locks = holdfast.connect(url, ttl=ttl, unavailable_after=60.0)
        self._buffer = Buffer(self._locks, NAME)
        self._workers: dict[str, Worker] = {}
        self._killed: list[Event] = []

    def complete(self, faults: Sequence[Fault]) -> Report:
        began = time.monotonic()
        share = -(-self.items // PRODUCERS)
        for number in range(PRODUCERS):
            self._start(f"p{number}", range(number * share, (number + 1) * share))
        for number in range(CONSUMERS):
            self._start(f"c{number}")
        for fault in faults:
            eventually(lambda: self._taken() >= fault.part * self.items, _LONGEST)  # noqa: B023
            worker = self._workers[fault.actor]
            if fault.kind is Kind.KILLED:
                self._kill(worker)
            else:
                self._freeze(worker)
        producers = [worker for worker in self._workers.values() if worker.items is not None]
        eventually(lambda: all(worker.ended for worker in producers), _LONGEST)
        eventually(lambda: not self._buffer.content()[0], _LONGEST)
        self._end_consumers()
        return self._report(time.monotonic() - began)

    def _start(self, actor: str, items: range | None = None) -> None:
        self._workers[actor] = Worker(self, actor, items)

    def _kill(self, worker: Worker) -> None:
        """Another process goes on in its place."""
        worker.kill()
        self._killed.append(Event(time.monotonic(), worker.actor, Kind.KILLED))
        self._start(f"{worker.actor}-again", None if worker.items is None else worker.left())

    def _freeze(self, worker: Worker) -> None:
        """While it holds the lock, and for longer than its lease."""
        freeze_request(worker.file).touch()
        eventually(lambda: state(worker.pid) == "T", _LONGEST)
        resumed = time.monotonic() + 2 * self.ttl
        eventually(lambda: time.monotonic() > resumed, _LONGEST)
        os.kill(worker.pid, signal.SIGCONT)

    def _end_consumers(self) -> None:
        consumers = [worker for worker in self._workers.values() if worker.items is None]
        for worker in consumers:
            if not worker.ended:
                self._buffer.put(LAST)
        eventually(lambda: all(worker.ended for worker in consumers), _LONGEST)

    def _taken(self) -> int:
        files = [worker.file for worker in self._workers.values() if worker.items is None and worker.file.exists()]
        return sum(file.read_bytes().count(b'"took"') for file in files)

    def _report(self, seconds: float) -> Report:
        left, last_taken = self._buffer.content()
        files = [worker.file for worker in self._workers.values()]
        history = [event for file in files for event in events(file) if event.item != LAST]
        known = {actor: item for actor, item in last_taken.items() if item != LAST}
        return Report(
            examine([*history, *self._killed], left, known),
            sum(event.kind is Kind.TOOK for event in history),
            [failure for file in files for failure in failures(file)],
            seconds,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for worker in self._workers.values():
            worker.kill()
        self._locks.close()
