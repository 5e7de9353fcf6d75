"""A session with one host of an ensemble, opened by the engine's own code, so that both can do the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self

from holdfast._config.targets import Target
from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.zookeeper import names
from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.engine import connect
from holdfast.engines.zookeeper.requests import ROUNDING, Requester
from holdfast.engines.zookeeper.session import ZooKeeperSession


class HostConnection:
    """``with HostConnection(target, host) as connection: connection.open(timeout)``. Raises what an engine raises."""

    def __init__(self, target: Target, host: tuple[str, int]) -> None:
        self.ttl: Final = target.options.ttl
        self.granted = 0.0  #: the time-out of the session, as the server has it
        self._target, self._host = target, host
        self._base = target.target.base
        options = {**target.engine_options, "token_ttl": None, "ttl": self.ttl}
        self._hub = connect(target.target._replace(hosts=(host,)), options).hub()
        self._requester = Requester(self._hub, BLOCKING)
        self.session: Final = ZooKeeperSession(self._hub, BLOCKING, self._base)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        run(self.session.close())

    def path(self, name: str) -> str:
        return names.path(self._base, name)

    def again(self, ttl: float) -> HostConnection:
        """The same host, with another ttl."""
        return HostConnection(self._target._replace(options=replace(self._target.options, ttl=ttl)), self._host)

    def open(self, timeout: float) -> None:
        """Open a session, with the timeout that the server grants, even if it is not the requested one."""
        run(self._requester.reconnected(self._connection, timeout))
        negotiated = self._connection.negotiated
        self.granted = self.ttl if abs(negotiated - self.ttl) <= ROUNDING else negotiated

    def sync(self, timeout: float) -> None:
        """One round trip to the leader."""
        synced = self._requester.reply()
        self._connection.sync(self._base or "/", synced.receiver)
        run(self._requester.confirm(self._connection, synced, timeout))

    def get(self, path: str, timeout: float) -> tuple[bytes, Any]:
        return run(self._requester.get(self._connection, path, timeout))

    def children(self, path: str, timeout: float) -> Sequence[str]:
        return run(self._requester.children(self._connection, path, timeout))

    def delete(self, path: str, timeout: float) -> bool:
        return run(self._requester.delete(self._connection, path, timeout))

    @property
    def _connection(self) -> Connection:
        return self._hub.connection(self.ttl)
