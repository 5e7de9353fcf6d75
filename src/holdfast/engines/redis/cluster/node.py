"""What a cluster's parts see of its servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.cluster.slots import Place
from holdfast.engines.redis.connections.channel import Channel
from holdfast.engines.redis.dialect.replies import Redirected
from holdfast.engines.redis.dialect.requests import Call, Publish


class Node(Channel, Protocol):
    """A channel to one server of the cluster."""

    publish: Publish

    @property
    def at_rest(self) -> bool:
        """Whether it can be closed without harm to anybody who waits for an answer, or for a push."""

    async def run_acknowledged(
        self, call: Call, replicas: int, timeout: float, *, asking: bool = False
    ) -> tuple[Any, int]: ...


N = TypeVar("N", bound=Node)
N_co = TypeVar("N_co", bound=Node, covariant=True)


class Nodes(Protocol[N_co]):
    """The servers of a cluster, and what was learnt of them."""

    async def owner(self, key: str, timeout: float) -> Place:
        """The server that has the slot of ``key``, as far as is known. Asks for the table if something did not fit."""

    def known_owner(self, key: str) -> Place | None:
        """The same without asking anybody."""

    def node(self, place: Place) -> N_co:
        """The channel to a server; it is opened by its first request."""

    def redirect(self, redirection: Redirected, asked: Place) -> tuple[Place, bool]:
        """Where to go instead, and whether to announce that we were sent (the slot is still on its way)."""

    def blame(self, place: Place, failure: RequestFailed, replicas: int = 0, *, late: bool = False) -> None:
        """A request for which ``replicas`` were to acknowledge failed at ``place``; ``late``: after some time."""

    def untracked(self, keys: Sequence[str]) -> None:
        """These were renewed where nobody will tell us of their loss."""

    def silence(self, place: Place, replicas: int) -> RequestFailed | None:
        """A failure, if it is better not to wait for this server now."""
