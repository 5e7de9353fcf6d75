"""Who holds a lock, in words for people."""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Final

_HOST: Final = os.uname().nodename
_PROGRAM: Final = os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] else "python"
_LONGEST: Final = 100


def describe() -> bytes:
    """The calling thread, as a JSON object."""
    thread = threading.current_thread().name[:_LONGEST]
    return json.dumps({"host": _HOST, "pid": os.getpid(), "thread": thread, "program": _PROGRAM[:_LONGEST]}).encode()
