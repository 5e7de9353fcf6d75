"""The demo's processes, seen from the demo: started, listened to, frozen, woken, and ended."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self


class WorkerFailed(Exception):
    """Raised when a process of the demo ended, or fell silent, where it should not have."""


class Message(NamedTuple):
    """What a process said."""

    worker: Worker
    kind: str
    facts: dict[str, Any]


class Worker:
    """One process, started and listening."""

    def __init__(self, name: str, arguments: Sequence[object], errors: Path) -> None:
        self.name = name
        self._errors = errors
        self._unread = b""
        with errors.open("wb") as stderr:
            self.process = subprocess.Popen(
                # -P: a file of the current directory must not stand in for a module.
                [sys.executable, "-P", "-m", "holdfast.cli.demo.worker", *map(str, arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                bufsize=0,
                # Ctrl-C is for the demo, which then ends its processes itself, frozen ones too.
                start_new_session=True,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._orders = self.process.stdin
        self.output = self.process.stdout

    @property
    def pid(self) -> int:
        return self.process.pid

    def tell(self, order: str) -> None:
        try:
            self._orders.write(f"{order}\n".encode())
        except BrokenPipeError:
            raise self.failure() from None

    def heard(self) -> list[Message] | None:
        """What it said since, without waiting if its output is readable; None if it has ended."""
        chunk = os.read(self.output.fileno(), 65536)
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        messages = [json.loads(line) for line in lines]
        return [Message(self, facts.pop("kind"), facts) for facts in messages] if chunk else None

    def freeze(self) -> None:
        """Stop it as a closed lid or a full swap would, and see it stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def wake(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def failure(self) -> WorkerFailed:
        code = self.process.wait()
        last = self._errors.read_text(errors="replace").strip().splitlines()[-1:]
        return WorkerFailed(f"process {self.name} ended with code {code}" + "".join(f": {line}" for line in last))

    def end(self) -> None:
        with self.process:  # closes the pipes and waits
            self.process.kill()  # also ends a frozen one


class Crew:
    """All processes of one act. However the act ends, none of them is left."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._workers: list[Worker] = []
        self._selector = selectors.DefaultSelector()
        self._unclaimed: list[Message] = []

    def start(self, name: str, *arguments: object) -> Worker:
        worker = Worker(name, arguments, self._directory / f"{name}.stderr")
        self._workers.append(worker)
        self._selector.register(worker.output, selectors.EVENT_READ, worker)
        return worker

    def listen(self, seconds: float) -> list[Message]:
        """What was said, after ``seconds`` at the latest. A process that ended well is not listened to any more."""
        messages: list[Message] = []
        for key, _ in self._selector.select(seconds):
            worker: Worker = key.data
            heard = worker.heard()
            if heard is None:
                self._selector.unregister(worker.output)
                if worker.process.wait() != 0:
                    raise worker.failure()
            else:
                messages += heard
        return messages

    def expect(self, worker: Worker, *kinds: str, within: float = 15.0) -> Message:
        """Wait until ``worker`` says one of ``kinds``. What others say meanwhile is kept for who expects it."""
        until = time.monotonic() + within
        while (left := until - time.monotonic()) > 0:
            for message in self._unclaimed:
                if message.worker is worker and message.kind in kinds:
                    self._unclaimed.remove(message)
                    return message
            self._unclaimed += self.listen(left)
        raise WorkerFailed(f"process {worker.name} did not say {' or '.join(kinds)!r} within {within:g} s")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with ExitStack() as stack:  # a signal during one of these must not leave out the others
            stack.callback(self._selector.close)
            for worker in self._workers:
                stack.callback(worker.end)
