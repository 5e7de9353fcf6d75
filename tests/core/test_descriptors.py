"""No descriptor is left: the error states that, and the client works again when there is one."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import os, resource, holdfast
with holdfast.connect("memory:warm") as warm:
    warm.lock("a").acquire().release()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
hogs = []
try:
    while True:
        hogs.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
for _ in range(SPARE):
    os.close(hogs.pop())
locks = holdfast.connect("memory:")
try:
    locks.lock("a").acquire(timeout=1).release()
except holdfast.EngineUnavailable as error:
    assert "Too many open files" in str(error), error
    print("unavailable")
else:
    print("acquired")
for hog in hogs:
    os.close(hog)
locks.lock("a").acquire(timeout=5).release()
"""


@pytest.mark.parametrize("spare, outcome", [(0, "unavailable"), (1, "unavailable"), (4, "acquired")])
def test_a_client_without_descriptors_is_unavailable_and_recovers(spare: int, outcome: str) -> None:
    script = SCRIPT.replace("SPARE", str(spare))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, outcome, "")
