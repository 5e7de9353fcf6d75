"""Clients that outlive the test that opened them, since something global refers to them."""

from __future__ import annotations

from holdfast._core import lifecycle
from holdfast._runtime.blocking import BLOCKING, run


def end_open_clients() -> None:
    """Close every open client of this process, with its connections."""
    for core in list(lifecycle._open):
        if core.closed:
            continue
        if core.front is BLOCKING:
            run(core.close())
        else:
            core.begin_close()  # its loop has ended
