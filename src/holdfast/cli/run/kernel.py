"""Functions of Linux's prctl(2). On other systems each returns False, and less is guaranteed."""

from __future__ import annotations

import signal
import sys
from typing import Any, Final

_LINUX: Final = sys.platform.startswith("linux")
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_PR_SET_CHILD_SUBREAPER: Final = 36


def die_with_parent() -> bool:
    """Have the kernel kill this process when its parent's thread ends. Check getppid() afterwards: it may have ended.

    Kept over exec, except of set-user-ID programs and those with capabilities. Not inherited by children.
    """
    return _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


def adopt_orphans() -> bool:
    """Make this process the parent of each descendant whose own parent ends, so that none escapes."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_name(name: bytes) -> bool:
    """What ``ps`` and ``top`` show; at most 15 bytes."""
    return _prctl(_PR_SET_NAME, name)


def _prctl(option: int, value: Any) -> bool:
    if not _LINUX:
        return False
    import ctypes  # here, not above: only a run needs it

    return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
