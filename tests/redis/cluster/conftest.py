"""A cluster for tests that freeze nodes or leave slots half moved. It is repaired before each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.redis.cluster.support import agree, settle
from tests.servers.cluster import RedisCluster


@pytest.fixture(scope="package")
def _shared_cluster() -> Iterator[RedisCluster]:
    # So long that no frozen node is declared dead during a test.
    with RedisCluster(node_timeout=60.0) as cluster:
        yield cluster


@pytest.fixture
def cluster(_shared_cluster: RedisCluster) -> RedisCluster:
    """Three masters and three replicas, empty and in order at the start of each test. Tests must not kill a node or
    cause a failover here; such tests use ``start_cluster``."""
    for node in _shared_cluster.nodes:
        if not node.answering:
            node.resume()
    if not agree(_shared_cluster):
        settle(_shared_cluster)
    for master in _shared_cluster.masters():
        master.ask("FLUSHALL")
    return _shared_cluster
