"""Programs that end without closing anything: no message, no leftovers, and the lock is free."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

PROGRAMS = {
    "held": "lease = locks.lock('job').acquire()",
    "released": "locks.lock('job').acquire().release()",
    "two clients": "other = holdfast.connect(url); lease = locks.lock('job').acquire(); other.ping()",
    "the client is garbage": "locks.lock('job').acquire().release(); del locks",
    "kept out of reach": "sys.kept = (locks, locks.lock('job').acquire())",
    "by another thread": "thread = threading.Thread(target=hold, daemon=True); thread.start(); held.wait()",
    "on an event loop": "kept = asyncio.run(on_a_loop())",
}
BEGINNING = """
import asyncio, sys, threading
import holdfast

url = sys.argv[1]
locks = holdfast.connect(url)
held = threading.Event()

def hold():
    with locks.lock("job"):
        held.set()
        threading.Event().wait()

async def on_a_loop():
    asyncio.get_running_loop().slow_callback_duration = 60  # no warning after a scheduler stall
    locks = holdfast.aio.connect(url)
    return locks, await locks.lock("job").acquire()
"""


@pytest.mark.parametrize("program", PROGRAMS)
def test_program_exit_without_close_is_silent_and_leaves_no_lock(program: str, tmp_path: Path) -> None:
    path = tmp_path / "locks.db"
    source = Path(holdfast.__path__[0]).parent
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", f"{BEGINNING}\n{PROGRAMS[program]}", f"sqlite:{path}"],
        env=os.environ | {"PYTHONPATH": str(source)}, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
    assert os.listdir(f"{path}.d") == ["opening"]
    with holdfast.connect(f"sqlite:{path}") as locks, locks.lock("job", timeout=0) as lease:
        assert lease.held
