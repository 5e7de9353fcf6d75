"""Independent masters, as Redlock requires: no replication and no shared state."""

from __future__ import annotations

from collections.abc import Mapping

from tests.servers.clock import Clock
from tests.servers.group import Group
from tests.servers.process import start_all
from tests.servers.redis import RedisServer


class Masters(Group[RedisServer]):
    """``Masters(5)``; each further argument is a line of redis.conf. ``clocks``: clocks by position of the server."""

    def __init__(
        self, count: int, *config: str, password: str | None = None, clocks: Mapping[int, Clock] | None = None
    ) -> None:
        clocks = clocks or {}
        super().__init__([RedisServer(*config, password=password, clock=clocks.get(place)) for place in range(count)])
        self._password = password

    @property
    def url(self) -> str:
        user_info = f":{self._password}@" if self._password else ""
        return f"redlock://{user_info}{','.join(server.address for server in self.servers)}"

    def flush(self) -> None:
        """Delete all data and all scripts on every server."""
        for server in self.servers:
            server.flush()

    def _start(self) -> None:
        start_all(self.servers)
