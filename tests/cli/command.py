"""Runs the command in this process and returns its output and exit code."""

from __future__ import annotations

import errno
import json
import os
from typing import Any, NamedTuple

import pytest

from holdfast.cli.main import main


def read_terminal(descriptor: int) -> str:
    """Reads everything written to the closed other end, then closes this descriptor."""
    chunks = []
    try:
        while chunk := os.read(descriptor, 10_000):
            chunks.append(chunk)
    except OSError as error:
        if error.errno != errno.EIO:  # Linux reports the closed other end this way
            raise
    os.close(descriptor)
    return b"".join(chunks).decode()


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on the one line of stdout."""
        (line,) = self.out.splitlines()
        return json.loads(line)


class Run:
    """``run("ls", "--json")``."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Done:
        self._capsys.readouterr()
        try:
            code = main(arguments)
        except SystemExit as ended:  # argparse
            code = int(ended.code or 0)
        return Done(code, *self._capsys.readouterr())
