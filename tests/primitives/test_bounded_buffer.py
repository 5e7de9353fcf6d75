"""Three producers and three consumers of one buffer, in six processes, of which some are killed and one is frozen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.primitives.bounded_buffer.run import ALL_FAULTS, FEW_FAULTS, Fault, Run
from tests.servers.zookeeper import ZooKeeperServer
from tests.support.soak import soak

#: In seconds. On ZooKeeper it is the session's: a dead waiter counts as present until its session has ended.
TTL: Final = 2.0
#: No live consumer waits beside an item for longer, in seconds: a dead process's lease ends after TTL, and a notified
#: waiter that has died is noticed after PRESENCE.
LONGEST_WAIT: Final = 6.0


def check(url: str, directory: Path, items: int, faults: Sequence[Fault]) -> None:
    with Run(url, directory, items, TTL) as run:
        report = run.complete(faults)
    print(report)
    assert report.findings.consistent, report
    assert report.findings.longest_wait < LONGEST_WAIT, report
    assert report.taken > items - 2 * len(faults) - len(report.failures), "all but those whose outcome is unknown"
    assert any("LockLost" in failure for failure in report.failures), "the frozen one has outlived its lease"


@pytest.mark.parametrize(
    "items, faults", [(150, FEW_FAULTS), soak(20_000, ALL_FAULTS, reason="kills and freezes meet rare steps")]
)
def test_no_item_is_lost_doubled_or_stuck_on_sqlite(items: int, faults: Sequence[Fault], tmp_path: Path) -> None:
    check(f"sqlite://{tmp_path}/locks.db", tmp_path, items, faults)


@pytest.mark.parametrize(
    "items, faults", [(300, FEW_FAULTS), soak(20_000, ALL_FAULTS, reason="kills and freezes meet rare steps")]
)
def test_no_item_is_lost_doubled_or_stuck_on_redis(
    items: int, faults: Sequence[Fault], tmp_path: Path, redis_url: str
) -> None:
    check(redis_url, tmp_path, items, faults)


@pytest.mark.parametrize(
    "items, faults", [(100, FEW_FAULTS), soak(2_000, ALL_FAULTS, reason="kills and freezes meet rare steps")]
)
def test_no_item_is_lost_doubled_or_stuck_on_zookeeper(
    items: int, faults: Sequence[Fault], tmp_path: Path, zookeeper_server: ZooKeeperServer
) -> None:
    check(zookeeper_server.url, tmp_path, items, faults)
