"""Open file descriptors that are not leaked when a signal handler raises."""

from __future__ import annotations

import os
from collections import deque
from functools import partial
from itertools import repeat


class Descriptors:
    """Descriptors in the order of opening.

    Python runs signal handlers between two bytecodes. A handler that raises after ``os.open`` has returned and before
    the number is stored would leak an open file; and so would one between removing the number and ``os.close``. The
    flock of a leaked file would keep every process out. So opening and storing is one call of C code here, and so is
    removing and closing.
    """

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: list[int] = []

    def open(self, path: str, flags: int, *, dir_fd: int | None = None) -> int:
        self._open.extend(map(partial(os.open, dir_fd=dir_fd), (path,), (flags | os.O_CLOEXEC,), (0o600,)))
        return self._open[-1]

    def __getitem__(self, index: int) -> int:
        return self._open[index]

    def __len__(self) -> int:
        return len(self._open)

    def close_last(self) -> None:
        _exhaust(map(os.close, map(self._open.pop, (-1,))))

    def close(self) -> None:
        """Close all of them. May be repeated, also after it was interrupted."""
        while self._open:
            try:
                _exhaust(map(os.close, map(self._open.pop, repeat(-1, len(self._open)))))
            except OSError:
                pass  # the descriptor is closed even if close() fails


def _exhaust(steps: map[None]) -> None:
    deque(steps, 0)
