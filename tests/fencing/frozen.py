"""A holder that is frozen past its lease at a barrier and writes when it wakes up.

The holder is a separate process. It acquires the lock, runs ``load``, and stops at its barrier. There it is frozen
(SIGSTOP), so its lease is not renewed and expires; the test acquires the lock and makes its own update. Then the holder
continues and runs ``store``.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import holdfast

from .processes import Program

_PRELUDE = """
import os, sys
import holdfast
from holdfast.errors import StaleToken
def report(*words): print(*words, flush=True)
locks = holdfast.connect(sys.argv[1], ttl=0.4)
lease = locks.lock("account").acquire()
"""
_WRITE_LATE = """
report("loaded", value)
sys.stdin.readline()
try:
    {store}
    report("wrote")
except StaleToken:
    report("refused")
os._exit(0)  # the lease is lost: there is nothing to release
"""


def late_write(
    directory: Path, load: str, store: str, *arguments: object, meanwhile: Callable[[holdfast.Lease], None]
) -> str:
    """Returns "wrote" or "refused" for the late write. ``load`` sets ``value``; arguments begin at argv[2]."""
    url = f"sqlite://{directory}/locks.db"
    source = load + _WRITE_LATE.format(store="\n    ".join(store.strip().splitlines()))
    holder = Program(source, url, *arguments, prelude=_PRELUDE)
    with holder.process:
        try:
            assert holder.answer() == "loaded 100"
            os.kill(holder.process.pid, signal.SIGSTOP)
            assert os.waitid(os.P_PID, holder.process.pid, os.WSTOPPED | os.WNOWAIT) is not None
            with holdfast.connect(url) as locks, locks.lock("account").acquire(timeout=20) as lease:
                meanwhile(lease)
                os.kill(holder.process.pid, signal.SIGCONT)
                holder.send("go on")
                outcome = holder.answer()
            assert holder.result() == 0
            return outcome
        finally:
            holder.kill()
