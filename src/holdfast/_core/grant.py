"""A grant: what the engine gave to a claim, and until when it is valid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from holdfast._core import lease_time
from holdfast.engines.base import Attempt, Found, is_of_grant
from holdfast.errors import LossReason

if TYPE_CHECKING:
    from holdfast._core.hold import Hold
    from holdfast._core.local_queue import LocalWaiter
    from holdfast._core.policy import Policy


_LOST: Final[Mapping[Found, LossReason]] = {Found.GONE: "broken", Found.STOLEN: "stolen", Found.ENDED: "session"}


class Grant:
    """One claim that the engine granted. Passes from hold to hold when it is handed over inside the process.

    ``deadline``: until when it is valid; only a confirmed lease-setting request moves it, and only forward.
    """

    __slots__ = (
        "attempt",
        "by_session",
        "claim",
        "deadline",
        "due",
        "early",
        "failing",
        "handover",
        "hold",
        "last_token",
        "longest_ttl",
        "lost",
        "next_token",
        "policy",
        "since",
        "size",
        "slack",
        "ttl",
        "watched",
    )

    def __init__(
        self,
        attempt: Attempt,
        policy: Policy,
        sent: float,
        last_token: int,
        ttl: float | None = None,
        slack: float = 0.0,
        size: int = 0,
    ) -> None:
        self.attempt = attempt
        self.claim = claim = attempt.claim
        self.policy = policy
        #: It lives as long as a session at the engine: it does not end by itself when its deadline passes.
        self.by_session = ttl is not None
        self.ttl = claim.ttl if ttl is None else ttl  #: what the watchdog renews to; lease.renew(ttl=…) may raise it
        self.longest_ttl = self.ttl  #: the longest that was asked for: the engine may keep what is given up for as long
        self.slack = slack
        self.size = size  #: of a semaphore: how many permits it has, as the engine knows it
        self.deadline = sent + policy.valid_for if ttl is None else lease_time.deadline(sent, ttl, slack)
        self.since = sent
        self.next_token = last_token - claim.tokens + 1
        self.last_token = last_token
        self.failing = False  #: the last renewal got no answer
        self.lost: LossReason | None = None
        self.hold: Hold | None = None  #: None while it is on its way from one local waiter to the next
        self.handover: tuple[object, LocalWaiter] | None = None  #: the last one: (giver, receiver)
        self.due = self.deadline  #: when the watchdog looks at it next
        self.early = False  #: the watchdog has been asked to have the engine report its loss before the first renewal
        self.watched = False  #: the engine reports its loss

    def draw_token(self) -> int:
        """The next token of the reserved block: larger than every one handed out before it."""
        token = self.next_token
        if token > self.last_token:
            raise RuntimeError("internal error in holdfast: the block of fencing tokens is used up")
        self.next_token = token + 1
        return token

    def has_token(self, token: int) -> bool:
        """Whether ``token`` is one of the reserved block."""
        return is_of_grant(token, self.last_token, self.claim.tokens)

    def stop_handovers(self) -> None:
        """Keep it with its present hold: the rest of the block is given up. The caller holds the core's lock."""
        self.next_token = self.last_token + 1

    def handed_on_by(self, giver: object) -> bool:
        """Whether ``giver`` has handed it to a local waiter, as far as that waiter can know of it."""
        return self.handover is not None and self.handover[0] is giver and self.handover[1].inherits

    def confirm(self, sent: float, ttl: float) -> None:
        """A lease-setting request, first transmitted after ``sent``, was confirmed."""
        self.failing = False
        self.deadline = max(self.deadline, lease_time.deadline(sent, ttl, self.slack))

    def why_expired(self) -> LossReason:
        return "unreachable" if self.failing else "expired"

    def why_lost(self, found: Found, now: float) -> LossReason:
        """The reason for a grant that the engine reports as gone."""
        if found is Found.GONE and now >= self.deadline:
            return self.why_expired()  # it may have expired while the answer was on its way
        return _LOST[found]
