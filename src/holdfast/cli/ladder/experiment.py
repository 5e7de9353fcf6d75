"""One run of one cell: its clients, the register they update, and the timeline of what happened."""

from __future__ import annotations

import time
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Self

from holdfast.cli.ladder.processes import LadderFailed, Processes, Worker
from holdfast.cli.ladder.register import Register
from holdfast.cli.ladder.servers import Redis
from holdfast.cli.ladder.verdicts import Event, Outcome, Rung
from holdfast.cli.ladder.worker import Task

#: Lease of clients that no fault is aimed at: long enough not to expire during a run.
LONG: Final = 10.0

_TEXTS: Final = {
    "ready": "",
    "busy": "finds the lock taken, and waits",
    "taken": "has run its first command: line {line}, {code}",
    "checked": "has done its last check: line {line}, {code}",
    "unavailable": "gets no answer in time: {error}",
    "acquired": "acquires the lock",
    "read": "reads {value}",
    "wrote": "writes {value}",
    "refused": "is refused by the fence: token {token}, the newest is {seen}",
    "delete": "is about to give the lock back: line {line}, {code}",
    "released": "has released",
    "lost": "finds at its release that the lock was lost ({reason})",
}
#: Shown in the timeline only if the client stops there.
_DETAILS: Final = frozenset({"taken", "checked", "delete"})


class Experiment:
    """One run. ``lock_server``: the Redis server that grants the lock, if a single one does."""

    def __init__(
        self, processes: Processes, rung: Rung, addresses: list[str], name: str, lock_server: Redis | None
    ) -> None:
        self.rung = rung
        self.addresses = addresses
        self.lock_server = lock_server
        self._processes = processes
        self._name = name
        self._path = processes.directory / f"register-{name}"
        self._register = Register(self._path)
        self._workers: list[Worker] = []
        self._events: list[Event] = []
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        self._register.create()
        self._began = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._exits.close()

    # ---- clients and faults

    def client(self, name: str, lease: float = LONG, stop: str = "", addresses: list[str] | None = None) -> Worker:
        """Start a client and wait until it is connected. Its update begins with ``go``."""
        stops = [stop] if stop else []
        own = self.addresses if addresses is None else addresses
        task = Task(self.rung.module, own, self._name, lease, str(self._path), stops)

        def note(moment: float, step: str, facts: dict[str, Any]) -> None:
            if _TEXTS[step] and (step not in _DETAILS or facts["stopped"]):
                self._events.append(Event(moment - self._began, name, _TEXTS[step].format(**facts)))

        worker = self._processes.worker(name, task, note)
        self._exits.callback(worker.end)
        self._workers.append(worker)
        worker.reach("ready")
        return worker

    def record(self, text: str, actor: str = "fault") -> None:
        """Add to the timeline."""
        self._events.append(Event(time.monotonic() - self._began, actor, text))

    def kill(self, worker: Worker) -> None:
        worker.kill()
        self.record(f"{worker.name} is killed (SIGKILL)")

    def freeze(self, worker: Worker) -> None:
        worker.freeze()
        self.record(f"{worker.name} is stopped (SIGSTOP)")

    def wake(self, worker: Worker) -> None:
        self.record(f"{worker.name} resumes (SIGCONT)")
        worker.wake()
        worker.go()

    def held_for_ever(self) -> bool:
        """Whether the lock exists without an expiry. Call it before other clients try: they may be about to set one."""
        return self.lock_server is not None and self.lock_server.never_expires(self._name)

    # ---- result

    def outcome(self, *, stuck: bool = False, deleted: bool = False) -> Outcome:
        updates = sum(worker.wrote for worker in self._workers)
        value = self._register.read()
        lost = updates - value
        if lost < 0:
            raise LadderFailed(f"the register has {value} after {updates} updates")
        refused = sum("refused" in worker.steps for worker in self._workers)
        verdict = "locked for ever" if stuck else f"updates made: {updates}; the register has {value}; lost: {lost}"
        self.record(verdict, "result")
        timeline = sorted(self._events, key=lambda event: event.seconds)
        return Outcome(updates, lost, stuck, deleted, refused, timeline)
