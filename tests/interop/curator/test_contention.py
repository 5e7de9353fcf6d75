"""Threads and processes of both languages compete for a lock of Curator's: see ``contending.py``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

import holdfast
from tests.interop.contending import Mix, compete
from tests.interop.curator import PEER as PEER
from tests.interop.curator import Java, path_of
from tests.servers.zookeeper import ZooKeeperServer
from tests.support.child import Child
from tests.support.soak import soak

if not os.environ.get("INTEROP"):
    pytest.skip("INTEROP is not set", allow_module_level=True)

pytestmark = pytest.mark.timeout(400)  # the first run downloads the jars

#: After their time, all contenders end their last round (s).
LATE: Final = 30.0
SHORT: Final = 4.0
LONG: Final = 60.0

JAVA: Final = {
    "mutex": "InterProcessMutex",
    "read-write": "InterProcessReadWriteLock",
    "permits": "InterProcessSemaphoreV2",
    "single": "InterProcessSemaphoreMutex",
}
MIXES: Final[dict[str, Mix]] = {
    "mutex": Mix(("mutex", "mutex"), ("lock", "lock"), "lock"),
    "read-write": Mix(("read", "write"), ("read", "write"), "write"),
    "permits": Mix(("permits", "permits"), ("permits", "permits"), "permits"),
    "single": Mix(("single", "single"), ("permits", "permits"), "permits"),
}


@pytest.mark.interop(JAVA, "exclusion")
@pytest.mark.parametrize("kind", MIXES)
@pytest.mark.parametrize("seconds", [SHORT, soak(LONG, reason="a race of two languages may need many rounds")])
def test_no_update_is_lost_and_no_contender_starves(
    java: Java, locks: holdfast.Client, zookeeper_server: ZooKeeperServer, tmp_path: Path, kind: str, seconds: float
) -> None:
    path = path_of("name")
    with Child(zookeeper_server.url) as child:
        contest = compete(
            MIXES[kind], java, locks, tmp_path, seconds, late=LATE, name="name", name_in_java=path, child=child
        )
    assert contest.least > 0
    assert len(contest.tokens) == (sum(result.grants for result in contest.results) if kind == "mutex" else 0)
