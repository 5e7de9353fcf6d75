"""Runs test programs in other processes and exchanges lines with them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_PRELUDE = """
import os, sys
from holdfast.errors import LockError, StaleToken
from holdfast.fencing import FileFence
fence = FileFence(sys.argv[1])
def report(*words): print(*words, flush=True)
def read_line(): return sys.stdin.readline().strip()
"""


class Program:
    """A Python program that calls ``report`` and ``read_line`` to communicate with the test."""

    def __init__(self, source: str, *arguments: object, prelude: str = _PRELUDE) -> None:
        command = [sys.executable, "-W", "error", "-c", prelude + source, *map(str, arguments)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        print(line, file=self.process.stdin, flush=True)

    def answer(self) -> str:
        """Returns its next line, or an empty string once it has ended. The timeout of the test bounds the wait."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def result(self) -> int:
        return self.process.wait(30)


@contextmanager
def programs(count: int, source: str, *arguments: object) -> Iterator[list[Program]]:
    """Starts ``count`` processes of one program; argument 2 is the number of the process. None outlives the test."""
    started = [Program(source, arguments[0], number, *arguments[1:]) for number in range(count)]
    try:
        yield started
    finally:
        for program in started:
            with program.process:  # closes the pipes
                program.kill()
