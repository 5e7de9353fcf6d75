"""Threads and processes of both languages compete for a lock of Redisson's: see ``contending.py``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

import holdfast
from tests.interop.contending import Mix, compete
from tests.interop.redisson import JAVA, Java
from tests.servers.redis import RedisServer
from tests.support.child import Child
from tests.support.soak import soak

if not os.environ.get("INTEROP"):
    pytest.skip("INTEROP is not set", allow_module_level=True)

#: After their time, all contenders end their last round (s). A waiter of a spin lock's holder may sleep for its ttl.
LATE: Final = 60.0

pytestmark = pytest.mark.timeout(400)  # the first run downloads the jars

MIXES: Final[dict[str, Mix]] = {
    "lock": Mix(("lock", "fenced"), ("lock", "lock"), "lock"),
    "fenced": Mix(("fenced", "fenced"), ("lock", "lock"), "lock"),
    "spin": Mix(("spin", "spin"), ("lock", "lock"), "lock"),
    "fair": Mix(("fair", "fair"), ("lock", "lock"), "lock"),
    "write": Mix(("read", "write"), ("read", "write"), "write"),
    "permits": Mix(("permits", "permits"), ("permits", "permits"), "permits"),
}


@pytest.mark.interop(JAVA, "contention without a lost update")
@pytest.mark.parametrize("kind", MIXES)
@pytest.mark.parametrize("seconds", [5.0, soak(60.0, reason="a race of two languages may need many rounds")])
def test_no_update_is_lost_and_no_contender_starves(
    redisson: Java, locks: holdfast.Client, redis_server: RedisServer, tmp_path: Path, kind: str, seconds: float
) -> None:
    if kind == "permits":
        redisson.resize("name", 1)
    with Child(redis_server.url, token_ttl=None) as child:
        contest = compete(MIXES[kind], redisson, locks, tmp_path, seconds, late=LATE, child=child)
    assert contest.least > 0
    assert contest.tokens or "fenced" not in MIXES[kind].java
