"""Work in a forked child, and whether it succeeded there."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from typing import Final

#: A child that hangs is ended after this time, in seconds.
_CHILD_ENDS_WITHIN: Final = 20


def fork(work: Callable[[], object]) -> int:
    """Do ``work`` in a forked child; returns its pid. It exits with 0 unless ``work`` raises or returns False."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, _CHILD_ENDS_WITHIN)
        code = 2 if work() is False else 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def exit_code(pid: int) -> int:
    """Wait for the end of a child; negative if a signal ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def in_a_child(work: Callable[[], object]) -> bool:
    """Whether ``work`` succeeds in a forked child: it neither raises nor returns False nor hangs."""
    return exit_code(fork(work)) == 0
