"""Helpers shared by the tests of the ZooKeeper engine."""

from __future__ import annotations

from typing import Any, Final

from kazoo.client import KazooClient

from holdfast._core import lease_time
from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.hub import Hub
from tests.servers.zookeeper import BASE, ZooKeeperServer, close_client
from tests.support.waiting import eventually
from tests.zookeeper.queue_nodes import QueueNodes

SOON: Final = 5.0
#: The ttl of a session that must survive a scheduler stall of a second; renewed about once a second.
LASTING: Final = 4.0
#: A request_timeout and connect timeout long enough that a scheduler stall causes no repeated request.
LONG_TIMEOUT: Final = 10.0


def nodes(plain: KazooClient, name: str, base: str = BASE) -> list[str]:
    """The queue of nodes of a lock, its head first; empty if it has none."""
    return QueueNodes(plain, name, base).nodes()


def hub_of(client: Any) -> Hub:
    hub: Hub = client._opened.session._hub
    return hub


def is_waiting(client: Any) -> bool:
    """Whether a caller of ``client`` has read the queue and waits. Its node exists a moment earlier; a
    predecessor that leaves in between is never seen."""
    return any(place.changed is not None for place in list(hub_of(client)._places.values()))


def connection_of(client: Any, ttl: float = 30.0) -> Connection:
    connection = hub_of(client).existing(ttl)
    assert connection is not None
    return connection


def confirmed(lease: Any) -> float:
    """The send time of the last request with which the leader confirmed ``lease``."""
    grant = lease._hold.grant
    return float(grant.deadline - lease_time.deadline(0.0, grant.ttl, grant.slack))


def until_renewed(lease: Any, since: float) -> None:
    """Wait until the leader has confirmed ``lease`` by a request sent after ``since``; fail if it was lost."""
    eventually(lambda: not lease.held or confirmed(lease) > since, within=2 * SOON)
    assert lease.held, f"lost: {lease.lost_reason}"


def end_session(server: ZooKeeperServer, client: Any, ttl: float = 30.0) -> None:
    """Make the servers end the session of a client, as they do when it was silent for too long."""
    inner = connection_of(client, ttl)._client
    close_client(server.client(client_id=(inner._session_id, inner._session_passwd)))
