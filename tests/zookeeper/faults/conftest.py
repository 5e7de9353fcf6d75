"""A proxy in front of the session's ZooKeeper, and a plain client that looks behind it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from tests.servers.zookeeper import ZooKeeperServer
from tests.servers.zookeeper_proxy import ZooKeeperProxy


@pytest.fixture
def zookeeper(zookeeper_server: ZooKeeperServer) -> KazooClient:
    return zookeeper_server.client()


@pytest.fixture
def proxy(zookeeper_server: ZooKeeperServer) -> Iterator[ZooKeeperProxy]:
    with ZooKeeperProxy(zookeeper_server.host, zookeeper_server.port) as started:
        yield started


@pytest.fixture
def proxied(proxy: ZooKeeperProxy, zookeeper_server: ZooKeeperServer) -> str:
    """The URL of the server behind the proxy."""
    return f"{proxy.url}?tick={zookeeper_server.tick}"
