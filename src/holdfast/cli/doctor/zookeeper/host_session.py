"""One host of an ensemble, with a session of the engine's own: what the engine can do there, the doctor can."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self

from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.zookeeper import connect, names
from holdfast.engines.zookeeper.asking import ROUNDING, Asker
from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.session import ZooKeeperSession
from holdfast.options import Target


class Visit:
    """``with Visit(target, host) as visit: visit.open(timeout)``. Raises as an engine's session does."""

    def __init__(self, target: Target, host: tuple[str, int]) -> None:
        self.ttl: Final = target.options.ttl
        self.granted = 0.0  #: the time-out of the session, as the server has it
        self._target, self._host = target, host
        self._base = target.target.base
        options = {**target.engine_options, "token_ttl": None, "ttl": self.ttl}
        self._hub = connect(target.target._replace(hosts=(host,)), options).hub()
        self._asker = Asker(self._hub, BLOCKING)
        self.session: Final = ZooKeeperSession(self._hub, BLOCKING, self._base)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        run(self.session.close())

    def path(self, name: str) -> str:
        return names.path(self._base, name)

    def again(self, ttl: float) -> Visit:
        """The same host, with another ttl."""
        return Visit(self._target._replace(options=replace(self._target.options, ttl=ttl)), self._host)

    def open(self, timeout: float) -> None:
        """Have a session, with the time-out that the server grants, whatever was asked for."""
        run(self._asker.reconnected(self._connection, timeout))
        negotiated = self._connection.negotiated
        self.granted = self.ttl if abs(negotiated - self.ttl) <= ROUNDING else negotiated

    def sync(self, timeout: float) -> None:
        """There and back to the leader."""
        synced = self._asker.reply()
        self._connection.sync(self._base or "/", synced.address)
        run(self._asker.confirm(self._connection, synced, timeout))

    def get(self, path: str, timeout: float) -> tuple[bytes, Any]:
        return run(self._asker.get(self._connection, path, timeout))

    def children(self, path: str, timeout: float) -> Sequence[str]:
        return run(self._asker.children(self._connection, path, timeout))

    def delete(self, path: str, timeout: float) -> bool:
        return run(self._asker.delete(self._connection, path, timeout))

    @property
    def _connection(self) -> Connection:
        return self._hub.connection(self.ttl)
