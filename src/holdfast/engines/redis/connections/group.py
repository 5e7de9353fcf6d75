"""The fleet port: several servers asked at once. What Redlock and a cluster's renewals are written on.

Three fleets exist, as there are channels: blocking (write to all, then read from all; no thread per server), asyncio
and simulated. A server that fails is one answer among the others: nothing here raises because of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from holdfast._runtime.base import Wakeup
from holdfast.engines.base import Suspects
from holdfast.engines.redis.connections.channel import Channel
from holdfast.engines.redis.dialect.replies import Answer
from holdfast.engines.redis.dialect.requests import Call

C = TypeVar("C", bound=Channel, contravariant=True)


class Fleet(Protocol[C]):
    """How channels of one kind are asked together."""

    async def ask(self, channels: Sequence[C], call: Call, timeout: float) -> list[Answer]:
        """The same script on all ``channels``; an answer for each, within ``timeout`` and the time of a connect."""

    async def ask_each(
        self, requests: Sequence[tuple[C, Sequence[Call]]], replicas: int, timeout: float
    ) -> list[Sequence[Answer]]:
        """As ``Channel.run_guarded``, for several servers at once."""


class KeeperFleet(Fleet[C], Protocol[C]):
    """A fleet of the watchdog's."""

    async def wait_for_hints(self, channels: Sequence[C], until: float, wakeup: Wakeup) -> Suspects:
        """As ``KeeperChannel.wait_for_hints``, for all of them."""
