"""Several servers that come up side by side and end together: what every topology is made of."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Final, Self

import redis

from tests.servers.redis import RedisServer, ServerFailed

READY_WITHIN: Final = 30.0
_POLL: Final = 0.01


def start_all(servers: Iterable[RedisServer]) -> None:
    """Start them side by side. From this thread, as a server ends with the thread that started it."""
    servers = list(servers)
    for server in servers:
        server.spawn()
    for server in servers:
        server.wait_until_ready()


def wait_until(what: Callable[[], bool], within: float, event: str) -> None:
    """Wait until ``what()`` is true, or raise ServerFailed. An error of a server counts as "not yet"."""
    deadline = time.monotonic() + within
    last: redis.RedisError | None = None
    while time.monotonic() < deadline:
        try:
            if what():
                return
            last = None
        except redis.RedisError as error:
            last = error
        time.sleep(_POLL)
    raise ServerFailed(f"{event}: not within {within:g} s; last error: {last}") from last


class Group:
    """``with SomeGroup(…) as group:``. A subclass makes its ``servers`` in ``_start`` and waits there for readiness."""

    def __init__(self) -> None:
        self.servers: list[RedisServer] = []

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> Self:
        """Start, and wait until the group is what it should be; if it does not get there, the logs are kept."""
        try:
            self._start()
        except BaseException:
            self._kill_all()
            raise
        return self

    def close(self) -> None:
        """End all servers and remove every trace."""
        self._kill_all()
        for server in self.servers:
            server.close()

    @property
    def answering(self) -> list[RedisServer]:
        """The servers that are neither ended nor frozen."""
        return [server for server in self.servers if server.answering]

    def at(self, port: int) -> RedisServer:
        """The server that listens on this port."""
        return next(server for server in self.servers if server.port == port)

    def _kill_all(self) -> None:
        # Asked in good order, a master first waits for replicas that a test may have cut off.
        for server in self.servers:
            server.kill()

    def _start(self) -> None:
        raise NotImplementedError
