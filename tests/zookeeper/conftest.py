"""Fixtures: clients, a plain kazoo client, and a proxy that understands ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from kazoo.client import KazooClient

import holdfast
from tests.servers.zookeeper import ZooKeeperServer
from tests.servers.zookeeper_proxy import ZooKeeperProxy

Connect = Callable[..., holdfast.Client]


@pytest.fixture
def proxy(zookeeper_proxy: ZooKeeperProxy) -> ZooKeeperProxy:
    return zookeeper_proxy


@pytest.fixture
def plain(zookeeper_server: ZooKeeperServer) -> KazooClient:
    """A plain client, without holdfast."""
    return zookeeper_server.client()


@pytest.fixture
def connect(zookeeper_server: ZooKeeperServer, proxy: ZooKeeperProxy) -> Iterator[Connect]:
    """``connect()`` opens a client of the server, ``connect(proxied)`` of another URL; closed before the proxy."""
    with ExitStack() as ending:

        def open_client(url: str = zookeeper_server.url, **keywords: Any) -> holdfast.Client:
            client = holdfast.connect(url, **keywords)
            ending.callback(client.close)
            return client

        yield open_client


@pytest.fixture
def proxied(proxy: ZooKeeperProxy) -> str:
    """The URL of the server behind the proxy."""
    return f"{proxy.url}?tick=0.1"
