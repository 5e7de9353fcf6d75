"""A hold: a live grant in this process, with its handles and its loss signal."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Protocol

from holdfast._core import states
from holdfast._core.grant import Grant
from holdfast._core.policy import Policy
from holdfast._runtime.base import Event
from holdfast.errors import LossReason

if TYPE_CHECKING:
    from holdfast._core.core import Core


class Handle(Protocol):
    """A Lease, as far as its hold needs to know it."""

    @property
    def released(self) -> bool: ...

    def _lost_on_release(self, reason: LossReason) -> None: ...


def _in_hand(reference: weakref.ref[Handle]) -> bool:
    lease = reference()
    return lease is not None and not lease.released


class Scope(Protocol):
    """An open ``async with``: told of the loss so that it can cancel its task."""

    def on_loss(self) -> None:
        """Called once, from any thread."""


class Hold:
    """What all handles of one thread (or task) on one name share: token, deadline, loss.

    Reading belief does no I/O: it compares the clock with the deadline. Whoever first sees that the deadline has passed
    flips the state; so a holder that was frozen learns of it with its first look.
    """

    __slots__ = (
        "_leases",
        "_loss",
        "caller",
        "core",
        "ends",
        "grant",
        "handles",
        "listeners",
        "policy",
        "reason",
        "scopes",
        "since",
        "state",
        "token",
    )

    def __init__(self, core: Core, grant: Grant, policy: Policy, caller: Hashable, started: float) -> None:
        self.core = core
        self.grant = grant
        self.policy = policy
        self.caller = caller
        self.token = grant.draw_token()
        self.state = states.State.HELD
        self.reason: LossReason | None = None
        self.handles = 0
        self.since = started
        self.ends = None if policy.max_hold is None else started + policy.max_hold
        self.listeners: Sequence[Callable[[], None]] = ()
        self.scopes: Sequence[Scope] = ()  #: the open ``async with`` blocks, innermost last
        self._leases: list[weakref.ref[Handle]] = []
        self._loss: Event | None = None

    def handed_to(self, lease: Handle) -> None:
        """One of the ``handles`` has become a Lease in the user's hands. Only ever called by this hold's own caller."""
        if len(self._leases) > 2 * self.handles + 16:  # a long hold may be re-entered a million times
            self._leases = [ref for ref in self._leases if _in_hand(ref)]
        self._leases.append(weakref.ref(lease))

    def in_use(self) -> bool:
        """Whether any unreleased Lease exists. An interrupt may strike before the Lease does; nobody would release
        it."""
        return any(_in_hand(ref) for ref in self._leases)

    @property
    def deadline(self) -> float:
        """The end of belief."""
        end = self.grant.deadline
        return end if self.ends is None or end < self.ends else self.ends

    @property
    def held(self) -> bool:
        if self.state is not states.State.HELD:
            return False
        now = self.core.front.now()
        if now < self.deadline:
            return True
        self.core.expire(self, now)
        return False

    @property
    def lost(self) -> LossReason | None:
        """Why it was lost; None while held and after a release."""
        if self.state is states.State.HELD:
            _ = self.held
        return self.reason

    def why_over(self, now: float) -> LossReason:
        """The reason for a deadline that has passed."""
        if self.ends is not None and now >= self.ends and self.ends <= self.grant.deadline:
            return "max_hold"
        return self.grant.why_expired()

    def over(self) -> Event:
        """Set when the hold has ended, by loss or by release. Made on first use."""
        if self._loss is None:
            event = self.core.front.event()
            with self.core.lock:
                if self._loss is None:
                    self._loss = event
                    if self.state is not states.State.HELD:
                        event.set()
        return self._loss

    def ring(self) -> None:
        """Tell those who wait for the end."""
        if self._loss is not None:
            self._loss.set()
