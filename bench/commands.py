"""How many commands a Redis server has run, those inside scripts included."""

from __future__ import annotations

from typing import Any


class CommandCounter:
    """Counts since ``start``, or since it was created. The commands of the counter itself are left out."""

    def __init__(self, redis: Any) -> None:
        self._redis = redis
        self.start()

    def start(self) -> None:
        self._before = self._total()

    def count(self) -> int:
        """Commands since the start."""
        return self._total() - self._before

    def _total(self) -> int:
        stats = self._redis.info("commandstats")
        return sum(values["calls"] for name, values in stats.items() if name != "cmdstat_info")
