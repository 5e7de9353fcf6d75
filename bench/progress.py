"""Shows how far a run is: which question, which round. On a terminal in one place, else one text for each question."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # worker processes, which never show anything, start sooner without it
    from rich.console import Console
    from rich.status import Status

_STATUS: Final[ContextVar[tuple[Status, str] | None]] = ContextVar("bench_status", default=None)


@contextmanager
def asking(title: str, number: int, total: int, console: Console) -> Iterator[None]:
    """While one question is asked."""
    heading, started = f"[{number}/{total}] {title}", time.monotonic()
    if not console.is_terminal:
        console.print(f"{heading} …", markup=False)
        yield
        console.print(f"{heading}: {time.monotonic() - started:.0f} s", markup=False)
        return
    with console.status("", spinner="dots") as status:
        token = _STATUS.set((status, heading))
        step("starting servers")
        try:
            yield
        finally:
            _STATUS.reset(token)


def step(what: str) -> None:
    """Report a step of the question that is being asked."""
    if (shown := _STATUS.get()) is not None:
        status, heading = shown
        status.update(heading.replace("[", r"\[", 1) + f": {what}")
