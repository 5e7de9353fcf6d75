"""What is held of a read-write lock or a semaphore, and who may have it next. Pure: no clock, no I/O.

One rule decides: a request is granted when there is room for it, and no request that conflicts with it waits before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.engines.base import Kind, Mode


class Share(NamedTuple):
    """What one owner holds."""

    owner: str
    mode: Mode
    expires: float
    token: int
    description: bytes
    since: int  #: ns since the epoch


class Shared(NamedTuple):
    """A read-write lock or a semaphore. It is replaced, never changed."""

    kind: Kind
    size: int = 0  #: of a semaphore: how many permits it has; 0: any number
    shares: tuple[Share, ...] = ()

    def live(self, now: float) -> Shared:
        """Without what has expired."""
        if all(share.expires > now for share in self.shares):
            return self
        return self._replace(shares=tuple(share for share in self.shares if share.expires > now))

    def of(self, owner: str) -> Share | None:
        return next((share for share in self.shares if share.owner == owner), None)

    def having(self, share: Share) -> Shared:
        """With ``share``, in the place of what its owner had."""
        return Shared(self.kind, self.size, (*self._others(share.owner), share))

    def without(self, owner: str) -> Shared:
        return Shared(self.kind, self.size, self._others(owner))

    def _others(self, owner: str) -> tuple[Share, ...]:
        return tuple([share for share in self.shares if share.owner != owner])

    @property
    def free(self) -> int:
        """Of a semaphore with a size, how many permits are not held. After ``resize`` more may be held than it has."""
        return max(0, self.size - sum(share.mode.permits for share in self.shares))

    def has_room_for(self, mode: Mode) -> bool:
        if mode.kind is Kind.SEMAPHORE:
            return self.size == 0 or mode.permits <= self.free
        return not any(conflict(mode, share.mode) for share in self.shares)

    def grants(self, mode: Mode, before: Iterable[Mode]) -> bool:
        """Whether a request may be granted that waits behind those in ``before``."""
        return self.has_room_for(mode) and not any(conflict(mode, each) for each in before)

    def impossible(self, mode: Mode) -> str | None:
        """Why a request can never be granted, unless the semaphore is resized."""
        if self.size == 0 or mode.permits <= self.size:
            return None
        return f"{mode.permits} permits were asked for, and it has {self.size}"


def conflict(mode: Mode, other: Mode) -> bool:
    """Whether a request for ``mode`` must wait for one that came before it. Permits are granted in strict order: a
    request for many would never be granted if those for few could pass it."""
    return mode.kind is Kind.SEMAPHORE or not (mode.shared and other.shared)
