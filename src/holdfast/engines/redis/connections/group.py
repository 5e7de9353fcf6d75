"""The server group port: several servers asked in parallel. Redlock and a cluster's batches are written on it.

As with channels, three kinds exist: blocking (write to all, then read from all; no thread per server), asyncio (for
callers only) and simulated. A server that fails is one answer among the others: nothing here raises because of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from holdfast._runtime.base import Wakeup
from holdfast.engines.base import Suspects
from holdfast.engines.redis.connections.channel import Channel, KeeperChannel
from holdfast.engines.redis.dialect.replies import Answer
from holdfast.engines.redis.dialect.requests import Call

C = TypeVar("C", bound=Channel, contravariant=True)
K = TypeVar("K", bound=KeeperChannel, contravariant=True)


class ServerGroup(Protocol[C]):
    """How channels of one kind are asked together."""

    async def ask(self, channels: Sequence[C], call: Call, timeout: float) -> list[Answer]:
        """The same script on all ``channels``; an answer for each, within ``timeout`` and the time of a connect."""


class KeeperGroup(ServerGroup[K], Protocol[K]):
    """The same for the watchdog."""

    async def ask_each(
        self, requests: Sequence[tuple[K, Sequence[Call]]], replicas: int, timeout: float
    ) -> list[Sequence[Answer]]:
        """As ``KeeperChannel.run_tracked``, for several servers in parallel."""

    async def wait_for_hints(self, channels: Sequence[K], until: float, wakeup: Wakeup) -> Suspects:
        """As ``KeeperChannel.wait_for_hints``, for all of them."""
