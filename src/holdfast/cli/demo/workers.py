"""The worker processes, seen from the demo: it starts them, reads their messages, freezes, wakes and ends them."""

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
    """Raised when a worker process ended early, or did not report in time."""


class Message(NamedTuple):
    """One message of a worker."""

    worker: Worker
    kind: str
    facts: dict[str, Any]


class Worker:
    """One process, started. It reads commands from its stdin and writes messages to its stdout."""

    def __init__(self, name: str, arguments: Sequence[object], errors: Path) -> None:
        self.name = name
        self._errors = errors
        self._unread = b""
        with errors.open("wb") as stderr:
            self.process = subprocess.Popen(
                # -P: a file in the current directory must not shadow a module.
                [sys.executable, "-P", "-m", "holdfast.cli.demo.worker", *map(str, arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                bufsize=0,
                # Ctrl-C reaches only the demo, which then ends its workers, frozen ones too.
                start_new_session=True,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._commands = self.process.stdin
        self.output = self.process.stdout

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, command: str) -> None:
        try:
            self._commands.write(f"{command}\n".encode())
        except BrokenPipeError:
            raise self.failure() from None

    def read(self) -> list[Message] | None:
        """New messages; does not wait if the output is readable. None once the process has ended."""
        chunk = os.read(self.output.fileno(), 65536)
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        decoded = [json.loads(line) for line in lines]
        return [Message(self, facts.pop("kind"), facts) for facts in decoded] if chunk else None

    def freeze(self) -> None:
        """Stop the process, as a suspended laptop or heavy swapping would, and wait until it has stopped."""
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
            self.process.kill()  # also ends a frozen process


class Workers:
    """The worker processes of one part of the demo. All of them are killed when the ``with`` block ends."""

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

    def receive(self, seconds: float) -> list[Message]:
        """The messages of all workers; waits for at most ``seconds``. WorkerFailed if one ended with an error."""
        received: list[Message] = []
        for key, _ in self._selector.select(seconds):
            worker: Worker = key.data
            messages = worker.read()
            if messages is None:
                self._selector.unregister(worker.output)
                if worker.process.wait() != 0:
                    raise worker.failure()
            else:
                received += messages
        return received

    def expect(self, worker: Worker, *kinds: str, within: float = 15.0) -> Message:
        """Wait for a message of ``worker`` of one of these kinds. Other messages are kept for later calls."""
        until = time.monotonic() + within
        while (left := until - time.monotonic()) > 0:
            for message in self._unclaimed:
                if message.worker is worker and message.kind in kinds:
                    self._unclaimed.remove(message)
                    return message
            self._unclaimed += self.receive(left)
        raise WorkerFailed(f"process {worker.name} did not report {' or '.join(kinds)!r} within {within:g} s")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with ExitStack() as stack:  # a signal during one of these must not prevent the others
            stack.callback(self._selector.close)
            for worker in self._workers:
                stack.callback(worker.end)
