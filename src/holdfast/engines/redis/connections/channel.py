"""The channel port: how the Redis engine talks to a server. Everything above it is one code for all runtimes.

Three channels exist: blocking (a small pool of connections), asyncio (one multiplexed connection with automatic
pipelining) and simulated (``tests.simulation``). A channel never repeats a request by itself, with one
exception that is safe: a script unknown to the server (NOSCRIPT: it did not run) is loaded and called again.

Replies are as RESP gives them: bytes, int, list, None. An error reply raises what
:func:`holdfast.engines.redis.dialect.replies.error` makes of it; a request without a usable reply raises
:class:`~holdfast.engines.base.RequestFailed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from holdfast._runtime.base import Wakeup
from holdfast.engines.base import Suspects
from holdfast.engines.redis.dialect.packing import Argument
from holdfast.engines.redis.dialect.replies import Answer
from holdfast.engines.redis.dialect.requests import Call, Publish
from holdfast.engines.redis.scripts import Script


class Watch(Protocol):
    """One waiter's way of being woken, by client tracking or, where the server cannot, by Redisson's channel."""

    async def arm(self, key: str, channel: str, timeout: float) -> int:
        """Ask to be woken when ``key`` changes (or, fallback, when ``channel`` speaks), and *then* look:
        PTTL of ``key`` in ms (-2: there is no such key, -1: it has no TTL)."""

    async def pushed(self, until: float) -> bool:
        """Sleep until the armed key was pushed, at most until ``until``. A lost connection counts as a push."""

    def close(self) -> None:
        """Stop watching. No I/O that could block or fail."""


class Channel(Protocol):
    """A server, as seen from one runtime; or a cluster, which finds the right server for a key by itself."""

    @property
    def publish(self) -> Publish:
        """How a release is told to those who subscribe."""

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[Argument], timeout: float) -> Any:
        """Run a script; ``timeout`` bounds connecting, sending and the reply together."""

    async def run_acknowledged(self, call: Call, replicas: int, timeout: float) -> tuple[Any, int]:
        """As ``run``, and how many replicas have acknowledged it: waits until ``replicas`` have, on the connection that
        ran the script. That connection serves nobody else meanwhile."""

    async def command(self, args: Sequence[Argument], timeout: float) -> Any:
        """Run one plain command, whose key (if it has one) is its second word."""

    async def servers(self, timeout: float) -> Sequence[Channel]:
        """The servers that this channel leads to: those with keys of their own."""

    def watch(self) -> Watch:
        """A new watch for one waiter. No I/O before the first ``arm``."""

    async def run_guarded(self, calls: Sequence[Call], replicas: int, timeout: float) -> Sequence[Answer]:
        """Run several scripts; where fewer than ``replicas`` acknowledge, all have failed. On a keeper's channel, by
        the renewals' own connection, which afterwards tracks the keys that each call names (but not for changes that it
        makes itself)."""

    async def run_together(self, calls: Sequence[Call], timeout: float) -> Sequence[Answer]:
        """Run many small calls in few round trips; ``timeout`` bounds all of them together. On the renewals' own
        connection where there is one: it then tracks what plain commands name."""

    async def close(self) -> None: ...


class KeeperChannel(Channel, Protocol):
    """A channel of the watchdog's: it tracks what ``run_guarded`` names."""

    async def wait_for_hints(self, until: float, wakeup: Wakeup) -> Suspects:
        """Sleep until ``until``, the wake-up, or a push for keys that ``run_guarded`` watched: those keys, or ALL_NAMES
        if the connection was lost or everything was flushed. Keys are returned as the server names them."""
