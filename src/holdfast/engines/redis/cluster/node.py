"""What a cluster's parts see of its servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.cluster.slots import Place
from holdfast.engines.redis.connections.channel import Channel, KeeperChannel
from holdfast.engines.redis.dialect.replies import Redirected
from holdfast.engines.redis.dialect.requests import Call, Publish


class Node(Channel, Protocol):
    """A channel to one server of the cluster."""

    publish: Publish
    clustered: bool

    @property
    def at_rest(self) -> bool:
        """Whether it can be closed without harm to a caller that waits for an answer, or for a push."""

    async def run_acknowledged(
        self, call: Call, replicas: int, timeout: float, *, asking: bool = False
    ) -> tuple[Any, int]: ...


class KeeperNode(Node, KeeperChannel, Protocol):
    """The same for the watchdog."""


N = TypeVar("N", bound=Node)
N_co = TypeVar("N_co", bound=Node, covariant=True)
K = TypeVar("K", bound=KeeperNode)
K_co = TypeVar("K_co", bound=KeeperNode, covariant=True)


class Nodes(Protocol[N_co]):
    """The servers of a cluster, and what was learnt of them."""

    async def owner(self, key: str, timeout: float) -> Place:
        """The server that has the slot of ``key``, as far as is known. Asks for the table if something did not fit."""

    def known_owner(self, key: str) -> Place | None:
        """The same without any request."""

    def node(self, place: Place) -> N_co:
        """The channel to a server; it is opened by its first request."""

    def redirect(self, redirection: Redirected, asked: Place) -> tuple[Place, bool]:
        """Which server to ask instead, and whether to announce the redirection (the slot is still being moved)."""

    def blame(self, place: Place, failure: RequestFailed) -> None:
        """A request failed at ``place``."""


class KeeperNodes(Nodes[K_co], Protocol[K_co]):
    """The same for the watchdog."""

    def note_failure(self, place: Place, failure: RequestFailed, replicas: int, *, late: bool) -> None:
        """A request for which ``replicas`` were to acknowledge failed at ``place``; ``late``: after some time."""

    def untracked(self, keys: Sequence[str]) -> None:
        """These were renewed at a server that will not push their loss."""

    def expected_failure(self, place: Place, replicas: int) -> RequestFailed | None:
        """A failure, if it is better not to wait for this server now."""
