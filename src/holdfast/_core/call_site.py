"""Where a lease was acquired: the line of the user's program, kept as a code object and an offset.

A frame would keep alive whatever its function refers to, and a line number costs a search in a table. The line is
needed only for a lease that was dropped without a release.
"""

from __future__ import annotations

import contextlib
import os
from types import CodeType, FrameType
from typing import Final

_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
#: Of this package, but users of it.
_USERS: Final = (_PACKAGE + "testing" + os.sep, _PACKAGE + "cli" + os.sep)
_LIBRARY: Final = os.path.dirname(os.path.abspath(contextlib.__file__)) + os.sep
#: Calls go through these, and none begins there.
_BETWEEN: Final = tuple(
    _LIBRARY + name.replace("/", os.sep) for name in ("contextlib.py", "concurrent/futures/", "threading.py")
)
_ASYNCIO: Final = _LIBRARY + "asyncio" + os.sep
_LOOP: Final = 2
#: Where an event loop runs a task.
_RUNS: Final = frozenset({"_run", "_run_once", "run_forever"})


class _Between(dict[str, int]):
    """File name → whether a frame in this file only passes the call on. Asked for each acquire: so it is a table."""

    def __missing__(self, filename: str) -> int:
        ours = filename.startswith(_PACKAGE) and not filename.startswith(_USERS)
        self[filename] = between = _LOOP if filename.startswith(_ASYNCIO) else ours or filename.startswith(_BETWEEN)
        return between


#: ``between[code.co_filename]``
between: Final = _Between()


#: An instruction: a function's code, and the offset in it.
CallSite = tuple[CodeType, int]


def outside(frame: FrameType | None) -> CallSite | None:
    """The first frame from here on that belongs to the user's program.

    None if there is none: the call was passed to a thread or a task as it is. The frames of the event loop end the
    search, since the line that runs the loop did not acquire anything.
    """
    while frame is not None:
        code = frame.f_code
        kind = between[code.co_filename]
        if not kind:
            return (code, frame.f_lasti)
        if kind == _LOOP and code.co_name in _RUNS:
            return None
        frame = frame.f_back
    return None


def describe(site: CallSite | None) -> str:
    """For a message: where it was acquired."""
    if site is None:
        return "acquired by a call that was passed to a thread or a task directly"
    code, offset = site
    lines = (line for start, end, line in code.co_lines() if start <= offset < end)
    return f"acquired at {code.co_filename}:{next(lines, None) or code.co_firstlineno} in {code.co_qualname}"
