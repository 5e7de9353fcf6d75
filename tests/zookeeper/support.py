"""What the tests of the ZooKeeper engine share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from holdfast._core import lease_time
from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.hub import Hub
from tests.servers.zookeeper import BASE, ZooKeeperServer, close_client
from tests.support.waiting import eventually

SOON: Final = 5.0
#: Of a session that must not end, also on a machine that stands still for a second; renewed about once a second.
LASTING: Final = 4.0
#: A request_timeout, and what a client may take to connect: nothing is asked twice because the machine stood still.
PATIENT: Final = 10.0


class Call:
    """A call on a thread of its own; ``result`` is what it returned, or raises what it raised."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value = self._call()
        except BaseException as error:
            self._error = error

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def result(self, within: float = SOON) -> Any:
        self._thread.join(within)
        assert self.done, f"not done within {within:g} s"
        if self._error is not None:
            raise self._error
        return self._value


def nodes(plain: KazooClient, name: str, base: str = BASE) -> list[str]:
    """The line of a lock, first come first; empty if it has none."""
    try:
        return sorted(plain.get_children(f"{base}/{name}"), key=lambda node: node.rpartition("lock-")[2])
    except NoNodeError:
        return []


def hub_of(client: Any) -> Hub:
    hub: Hub = client._opened.session._hub
    return hub


def is_waiting(client: Any) -> bool:
    """Whether a caller of ``client`` has looked at the line and sleeps there. Its node is there a moment earlier: who
    leaves in between is not seen at all."""
    return any(place.predecessor_gone is not None for place in list(hub_of(client)._places.values()))


def connection_of(client: Any, ttl: float = 30.0) -> Connection:
    connection = hub_of(client).existing(ttl)
    assert connection is not None
    return connection


def confirmed(lease: Any) -> float:
    """When the last request was sent by which the leader has confirmed ``lease``."""
    grant = lease._hold.grant
    return float(grant.deadline - lease_time.deadline(0.0, grant.ttl, grant.slack))


def until_renewed(lease: Any, since: float) -> None:
    """Wait until the leader has confirmed ``lease`` by a request sent after ``since``, and it never was lost."""
    eventually(lambda: not lease.held or confirmed(lease) > since, within=2 * SOON)
    assert lease.held, f"lost: {lease.lost_reason}"


def end_session(server: ZooKeeperServer, client: Any, ttl: float = 30.0) -> None:
    """Have the servers end the session of a client, as they do when they have not heard of it for too long."""
    inner = connection_of(client, ttl)._client
    close_client(server.client(client_id=(inner._session_id, inner._session_passwd)))
