"""One run of one cell: its clients, the register they update, and the timeline of what happened."""

from __future__ import annotations

import time
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Self

from holdfast.cli.ladder.processes import Crew, LadderFailed, Worker
from holdfast.cli.ladder.register import Register
from holdfast.cli.ladder.servers import Redis
from holdfast.cli.ladder.verdicts import Event, Outcome, Rung
from holdfast.cli.ladder.worker import Task

#: Lease of clients that no fault is aimed at: long, so that nothing of theirs expires by the way.
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
#: Worth a line of the timeline only where the client stops.
_DETAILS: Final = frozenset({"taken", "checked", "delete"})


class Stage:
    """``lock_server``: the Redis that alone decides about the lock, if there is one."""

    def __init__(self, crew: Crew, rung: Rung, addresses: list[str], name: str, lock_server: Redis | None) -> None:
        self.rung = rung
        self.addresses = addresses
        self.lock_server = lock_server
        self._crew = crew
        self._name = name
        self._path = crew.directory / f"register-{name}"
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

    # ---- acting

    def client(self, name: str, lease: float = LONG, stop: str = "", addresses: list[str] | None = None) -> Worker:
        """A connected client that is ready for its update, which begins with ``go``."""
        stops = [stop] if stop else []
        own = self.addresses if addresses is None else addresses
        task = Task(self.rung.module, own, self._name, lease, str(self._path), stops)

        def note(moment: float, step: str, facts: dict[str, Any]) -> None:
            if _TEXTS[step] and (step not in _DETAILS or facts["stopped"]):
                self._events.append(Event(moment - self._began, name, _TEXTS[step].format(**facts)))

        worker = self._crew.worker(name, task, note)
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
        """The lock is there and has no expiry. Ask before others try to take it: they may be about to set theirs."""
        return self.lock_server is not None and self.lock_server.never_expires(self._name)

    # ---- counting

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
