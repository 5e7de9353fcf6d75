"""A group of servers that start in parallel and end together: the base of every topology."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, Self, TypeVar

import redis
from kazoo.exceptions import KazooException

from tests.servers.process import Closing, ServerFailed, ServerProcess
from tests.support.waiting import eventually

READY_WITHIN: Final = 30.0

Server = TypeVar("Server", bound=ServerProcess)


def wait_until(what: Callable[[], bool], within: float, event: str) -> None:
    """Wait until ``what()`` is true, or raise ServerFailed. An error of a server counts as "not yet"."""
    eventually(what, within, event, not_yet=(redis.RedisError, KazooException), failure=ServerFailed)


class Group(Closing, Generic[Server]):
    """``with SomeGroup(…) as group:``. A subclass creates its ``servers`` and waits for readiness in ``_start``."""

    #: All servers created so far.
    servers: list[Server]

    def __init__(self, servers: Sequence[Server] = ()) -> None:
        self.servers = list(servers)

    def start(self) -> Self:
        """Start, and wait until the group is ready; on failure, the logs are kept."""
        try:
            self._start()
        except BaseException:
            self._kill_all()
            raise
        return self

    def close(self) -> None:
        """End all servers and remove their directories."""
        self._kill_all()
        for server in self.servers:
            server.close()

    @property
    def answering(self) -> list[Server]:
        """The servers that are neither ended nor frozen."""
        return [server for server in self.servers if server.answering]

    def at(self, port: int) -> Server:
        """The server that listens on this port."""
        return next(server for server in self.servers if server.port == port)

    def _kill_all(self) -> None:
        # By SIGKILL: on SIGTERM, a master first waits for replicas that a test may have cut off.
        for server in self.servers:
            server.kill()

    def _start(self) -> None:
        raise NotImplementedError
