"""A command in a pseudo-terminal, as a user runs it."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager


class Terminal:
    """A terminal of 100 columns and 40 lines with a command in it; ``seen`` is what the command has written."""

    def __init__(self, environment: Mapping[str, str], command: Sequence[str]) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        try:
            self.process = subprocess.Popen(
                command, env={**environment, "TERM": "xterm"}, stdin=theirs, stdout=theirs, stderr=theirs
            )
        finally:
            os.close(theirs)
        self.seen = ""

    def read(self) -> bool:
        """Read on; False when all processes on the other side have closed the terminal."""
        try:
            chunk = os.read(self._ours, 65536)
        except OSError:  # EIO: no process has it open any more
            return False
        self.seen += chunk.decode(errors="replace")
        return bool(chunk)

    def read_until(self, text: str) -> None:
        while text not in self.seen:
            assert self.read(), self.seen

    def hang_up(self) -> None:
        """As when the window is closed, or the line breaks: nothing can be written any more."""
        ours, self._ours = self._ours, -1
        if ours >= 0:
            os.close(ours)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.hang_up()


@contextmanager
def terminal(environment: Mapping[str, str], command: Sequence[str]) -> Iterator[Terminal]:
    opened = Terminal(environment, command)
    try:
        yield opened
    finally:
        opened.close()


def assert_cursor_is_back(seen: str) -> None:
    assert -1 < seen.rfind("\x1b[?25l") < seen.rfind("\x1b[?25h")
