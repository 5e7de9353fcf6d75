"""The conformance suite on every engine that holdfast ships."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing.conformance import ConformanceSuite
from tests.servers.cluster import RedisCluster
from tests.servers.masters import Masters
from tests.servers.zookeeper import ZooKeeperServer


class TestMemory(ConformanceSuite):
    @pytest.fixture
    def url(self) -> str:
        return f"memory:{uuid.uuid4().hex}"


class TestSqlite(ConformanceSuite):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite://{tmp_path}/locks.db"


class TestRedis(ConformanceSuite):
    @pytest.fixture
    def url(self, redis_url: str) -> str:
        return redis_url


class TestRedlock(ConformanceSuite):
    pace = 1.5  # five answers for each request

    @pytest.fixture
    def url(self, request: pytest.FixtureRequest, five_masters: Masters) -> str:
        if "callspec" in vars(request.node) and request.node.callspec.params.get("fair"):
            pytest.skip("redlock does not give fair")  # a case that runs here without this parameter
        return five_masters.url


class TestCluster(ConformanceSuite):
    refused_names = frozenset({"{}"})  # an empty hash tag: the lock and its side keys would be in different slots

    @pytest.fixture
    def url(self, redis_cluster: RedisCluster) -> str:
        return redis_cluster.url


@pytest.fixture(scope="module")
def quick_zookeeper() -> Iterator[ZooKeeperServer]:
    """A server whose sessions may be as short as the shortest ttl of a case."""
    with ZooKeeperServer(tick=0.02) as server:
        yield server


@pytest.mark.needs_zookeeper
class TestZooKeeper(ConformanceSuite):
    pace = 2.0  # the last quarter of a session, and a tick, do not count as held

    @pytest.fixture
    def url(self, quick_zookeeper: ZooKeeperServer) -> str:
        return quick_zookeeper.url
