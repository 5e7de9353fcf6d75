"""Fixture: a plain kazoo client of the test session's ZooKeeper."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from tests.servers.zookeeper import ZooKeeperServer


@pytest.fixture
def zookeeper(zookeeper_server: ZooKeeperServer) -> KazooClient:
    return zookeeper_server.client()
