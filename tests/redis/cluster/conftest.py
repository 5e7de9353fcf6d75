"""A cluster whose nodes may be frozen and whose slots may be left half-way: it is repaired before each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.redis.cluster.support import agree, settle
from tests.servers.cluster import RedisCluster


@pytest.fixture(scope="package")
def _patient_cluster() -> Iterator[RedisCluster]:
    # Long enough that no test has a frozen node declared dead.
    with RedisCluster(node_timeout=60.0) as cluster:
        yield cluster


@pytest.fixture
def cluster(_patient_cluster: RedisCluster) -> RedisCluster:
    """Three masters and three replicas, empty and well at the start of each test. No node is killed here, and no
    replica takes over; tests about that use ``start_cluster``."""
    for node in _patient_cluster.nodes:
        if not node.answering:
            node.resume()
    if not agree(_patient_cluster):
        settle(_patient_cluster)
    for master in _patient_cluster.masters():
        master.ask("FLUSHALL")
    return _patient_cluster
