"""The channel port: how the Redis engine reaches a server. All code above it is shared by all runtimes.

A :class:`Channel` serves a client's callers, a :class:`KeeperChannel` its watchdog. Three kinds exist: blocking (a
small pool of connections), asyncio (one multiplexed connection with automatic pipelining; for callers only, because
the watchdog is a thread) and simulated (``tests.simulation``). A channel never repeats a request by itself, with one
exception that is safe: a script unknown to the server (NOSCRIPT: it did not run) is loaded and called again.

Replies are as RESP gives them: bytes, int, list, None. An error reply raises what
:func:`holdfast.engines.redis.dialect.replies.error` makes of it; a request without a usable reply raises
:class:`~holdfast.engines.base.RequestFailed`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from holdfast._runtime.base import Wakeup
from holdfast.engines.base import RequestFailed, Suspects
from holdfast.engines.redis.dialect.packing import Argument
from holdfast.engines.redis.dialect.replication import unacknowledged
from holdfast.engines.redis.dialect.replies import Answer
from holdfast.engines.redis.dialect.requests import Call, Opening, Publish
from holdfast.errors import EngineRefused


class Watch(Protocol):
    """How one waiter is woken: by client tracking or, where the server cannot, by Redisson's channel."""

    @property
    def polls(self) -> bool:
        """After ``arm``: the server allows neither, so that ``pushed`` looks many times a second."""

    async def arm(self, key: str, channel: str, timeout: float) -> int:
        """Ask to be woken when ``key`` changes (or, fallback, when something is published on ``channel``), and *then*
        look: PTTL of ``key`` in ms (-2: there is no such key, -1: it has no TTL)."""

    async def arm_reading(self, words: Sequence[Argument], channel: str, timeout: float) -> Any:
        """As ``arm``, for the key that the plain command ``words`` reads (its second word); the command's reply."""

    async def pushed(self, until: float) -> bool:
        """Sleep until the armed key was pushed, at most until ``until``. A lost connection counts as a push, and so
        does what is pushed to the seat."""

    def end_wait(self) -> None:
        """The ``pushed`` of a task returns now if it sleeps. What was pushed is reported by the next one."""

    async def take_seat(self, channel: str, waiter: str, timeout: float) -> str | None:
        """Have a connection on which releases of the lock with this ``channel`` can push to ``waiter`` (its id in the
        queue, and its owner, separated by a space); what its entry in the queue says of it. None: that is refused."""

    async def run(self, call: Call, timeout: float) -> Any:
        """Run a script on the connection of the seat."""

    @property
    def handed(self) -> int | None:
        """The token of the lock that was handed over to the waiter, since it took the seat."""

    @property
    def lost(self) -> bool:
        """There is no seat; or it was lost, and what is pushed to it does not arrive."""

    def close(self) -> None:
        """Stop watching. No I/O that could block or fail."""


class Channel(Protocol):
    """A server, as seen from one runtime; or a cluster, which finds the right server for a key by itself."""

    @property
    def publish(self) -> Publish:
        """How a release is published to waiters that subscribe."""

    async def run(self, call: Call, timeout: float) -> Any:
        """Run a script; ``timeout`` bounds connecting, sending and the reply together."""

    def start(self, keys: Opening, packed: bytes, timeout: float) -> Any:
        """As ``run``, for the request ``packed`` that begins with ``keys``, where that takes nothing but one request:
        the reply as it is, which may be an error, or an awaitable that brings it. None: nothing was sent."""

    async def run_acknowledged(self, call: Call, replicas: int, timeout: float) -> tuple[Any, int]:
        """As ``run``, and how many replicas have acknowledged it: waits until ``replicas`` have, on the connection that
        ran the script. That connection serves no other caller meanwhile."""

    async def command(self, args: Sequence[Argument], timeout: float) -> Any:
        """Run one plain command, whose key (if it has one) is its second word."""

    async def servers(self, timeout: float) -> Sequence[Channel]:
        """The servers that this channel leads to: those with keys of their own."""

    def watch(self) -> Watch:
        """A new watch for one waiter. No I/O before the first ``arm``."""

    async def close(self) -> None:
        """Also if it is cancelled: then everything is being closed, and only the end of that is not waited for."""


class KeeperChannel(Channel, Protocol):
    """A channel for the watchdog, with a tracking connection of its own from the first ``wait_for_hints`` on."""

    async def run_tracked(self, calls: Sequence[Call], replicas: int, timeout: float) -> Sequence[Answer]:
        """Run several scripts; where fewer than ``replicas`` acknowledge, all have failed. The tracking connection
        afterwards tracks the keys that each call names (but not for changes that it makes itself)."""

    async def run_together(self, calls: Sequence[Call], timeout: float) -> Sequence[Answer]:
        """Run many small calls in few round trips; ``timeout`` bounds all of them together. The tracking connection
        then tracks what plain commands name."""

    async def wait_for_hints(self, until: float, wakeup: Wakeup) -> Suspects:
        """Sleep until ``until``, ``wakeup``, or a push for keys that are tracked: those keys, or ALL_NAMES if the
        connection was lost or everything was flushed. Keys are returned as the server names them."""


async def close_all(channels: Iterable[Channel]) -> None:
    """Close them one after the other; also the rest, if it is cancelled or interrupted at one of them."""
    interruption: BaseException | None = None
    for channel in channels:
        try:
            await channel.close()
        except BaseException as error:
            interruption = interruption or error
    if interruption is not None:
        raise interruption


class Acknowledges(Protocol):
    """The part of a channel that ``answer_of`` needs."""

    async def run_acknowledged(self, call: Call, replicas: int, timeout: float) -> tuple[Any, int]: ...


async def answer_of(channel: Acknowledges, call: Call, replicas: int, timeout: float) -> Answer:
    """Run one call; its reply, or the failure. It has failed if fewer than ``replicas`` acknowledged it."""
    try:
        reply, acknowledged = await channel.run_acknowledged(call, replicas, timeout)
    except (RequestFailed, EngineRefused) as failure:
        return failure
    return reply if acknowledged >= replicas else unacknowledged(acknowledged, replicas)
