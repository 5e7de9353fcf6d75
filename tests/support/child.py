"""A second process that evaluates what a test sends: to be frozen or killed, or simply as another client.

``Child(url)`` starts ``python -m tests.support.child url``; ``child.do(code)`` evaluates an expression there (``locks``
is its client, ``keep`` a dict for leases) and returns the result through JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import holdfast
from tests.support.processes import end_child

ROOT = Path(__file__).parents[2]


class Child:
    """A child process with a holdfast client of its own."""

    def __init__(self, url: str, **options: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.child", url, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self._receive() == "ready"

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, code: str) -> None:
        """Have it evaluate ``code``; the answer is fetched by ``answer``."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(code) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        answer = self._receive()
        if "error" in answer:
            raise AssertionError(f"in the child: {answer['error']}")
        return answer["value"]

    def do(self, code: str) -> Any:
        self.send(code)
        return self.answer()

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def wake(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)

    def _receive(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the child has ended"
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process.stdout is not None
        end_child(self._process)
        self._process.stdout.close()


def main() -> None:
    locks = holdfast.connect(sys.argv[1], **json.loads(sys.argv[2]))
    keep: dict[str, Any] = {}
    names = {"locks": locks, "keep": keep, "holdfast": holdfast, "os": os, "time": time, "error_of": error_of}
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        try:
            answer = {"value": eval(json.loads(line), names)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    locks.close()


def error_of(act: Any) -> str:
    """The kind of error that ``act()`` raises, or "nothing"."""
    try:
        act()
    except holdfast.LockError as error:
        return f"{type(error).__name__}:{getattr(error, 'reason', '')}"
    return "nothing"


if __name__ == "__main__":
    main()
