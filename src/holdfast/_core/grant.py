"""A grant: what the engine gave to a claim, and until when it is valid."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from holdfast._core import lease_time
from holdfast._core.early_looks import EARLY
from holdfast._core.logs import log_later
from holdfast.engines.base import Attempt, Claim, Found, is_of_grant
from holdfast.engines.registers import Cell
from holdfast.errors import LossReason

if TYPE_CHECKING:
    from holdfast._core.core import Core
    from holdfast._core.hold import Hold
    from holdfast._core.local_queue import LocalWaiter
    from holdfast._core.policy import Policy


_LOST: Final[Mapping[Found, LossReason]] = {
    Found.GONE: "broken",
    Found.STOLEN: "stolen",
    Found.MIXED: "stolen",
    Found.ENDED: "session",
}
# In the place of a next token: larger than any. One number for all grants, since most have one token.
_USED_UP: Final = 1 << 63
_log: Final = logging.getLogger("holdfast.lease")


#: Of a claim that was asked for directly (``Core.direct``): its owner, its description, and the core that asked.
Asked = tuple[str, bytes, "Core"]


def attempt_of(policy: Policy, asked: Asked) -> Attempt:
    """An attempt at the claim that a direct request was for."""
    owner, description, core = asked
    claim = Claim(policy.key, owner, policy.ttl, description=description, mode=policy.mode)
    attempt: Attempt = core.session.attempt(claim)
    return attempt


class Grant:
    """One claim that the engine granted. Passes from hold to hold when it is handed over inside the process.

    ``deadline``: until when it is valid; only a confirmed lease-setting request moves it, and only forward.
    """

    # A grant is made for every acquire. What most never need has its first value here, and is stored once it differs.
    by_session = False  #: it lives as long as a session at the engine: it does not end by itself at its deadline
    slack = 0.0
    size = 0  #: of a semaphore: how many permits it has, as the engine knows it
    tokens = 1  #: how many were reserved
    loaded: tuple[int, Cell] | None = None  #: the claim's register as it was then, under the guard of the first token
    failing = False  #: the last renewal got no answer
    lost: LossReason | None = None
    hold: Hold | None = None  #: None while it is on its way from one local waiter to the next
    handover: tuple[object, LocalWaiter] | None = None  #: the last one: (giver, receiver)
    early = False  #: the watchdog has looked at it before its first renewal
    watched = False  #: the engine reports its loss
    unconfirmed = False  #: it was handed over with a short lease, see ``handed_over``

    def __init__(
        self,
        attempt: Attempt,
        policy: Policy,
        sent: float,
        last_token: int,
        ttl: float | None = None,
        slack: float = 0.0,
        size: int = 0,
        loaded: Cell | None = None,
    ) -> None:
        claim = attempt.claim
        self._attempt: Attempt | None = attempt
        self.name = claim.name  #: the engine's
        self.policy = policy
        self.ttl = claim.ttl  #: what the watchdog renews to; lease.renew(ttl=…) may raise it
        self.deadline = sent + policy.valid_for
        if ttl is not None or slack:
            self.by_session = ttl is not None
            self.ttl = claim.ttl if ttl is None else ttl
            self.slack = slack
            self.deadline = lease_time.deadline(sent, self.ttl, slack)
        if size:
            self.size = size
        self.longest_ttl = self.ttl  #: the longest that was asked for: the engine may keep what is given up for as long
        self.since = sent
        self.tokens = claim.tokens
        self.next_token = last_token - claim.tokens + 1
        self.last_token = last_token
        if loaded is not None:
            self.loaded = (self.next_token, loaded)
        #: When the watchdog looks at it next.
        self.due = min(lease_time.renew_at(sent, self.ttl, self.slack), self.deadline)

    @property
    def attempt(self) -> Attempt:
        """What the engine remembers about it."""
        attempt = self._attempt
        return self._make_attempt() if attempt is None else attempt

    def _make_attempt(self) -> Attempt:
        raise RuntimeError("internal error in holdfast: a grant without an attempt")

    @property
    def owner(self) -> str:
        """The owner under which the engine knows it."""
        return self.attempt.owner

    def draw_token(self) -> int:
        """The next token of the reserved block: larger than every one handed out before it."""
        token = self.next_token
        if token > self.last_token:
            raise RuntimeError("internal error in holdfast: the block of fencing tokens is used up")
        self.next_token = token + 1 if token < self.last_token else _USED_UP
        return token

    def has_token(self, token: int) -> bool:
        """Whether ``token`` is one of the reserved block."""
        return is_of_grant(token, self.last_token, self.tokens)

    def stop_handovers(self) -> None:
        """Keep it with its present hold: the rest of the block is given up. The caller holds the core's lock."""
        self.next_token = _USED_UP

    def handed_on_by(self, giver: object) -> bool:
        """Whether ``giver`` has handed it to a local waiter, as far as that waiter can know of it."""
        return self.handover is not None and self.handover[0] is giver and self.handover[1].inherits

    def handed_on_from(self, receiver: LocalWaiter | None) -> bool:
        """Whether it was handed on since it was granted, or handed over to ``receiver``."""
        return self.handover is not None and self.handover[1] is not receiver and self.handover[1].inherits

    def handed_over(self, sent: float, lease: float, now: float) -> None:
        """It came at ``now`` without a request, and lasts only for ``lease`` after some moment since ``sent``. The
        first renewal confirms it, soon: most are over by then."""
        self.unconfirmed = self.early = True
        self.since = now
        self.deadline = lease_time.deadline(sent, lease, self.slack)
        self.due = min(now + EARLY, lease_time.renew_at(now, lease), self.deadline)

    def confirm(self, sent: float, ttl: float) -> None:
        """A lease-setting request, first transmitted after ``sent``, was confirmed."""
        self.extend(lease_time.deadline(sent, ttl, self.slack))

    def extend(self, deadline: float) -> None:
        """A lease-setting request was confirmed, by which it is valid until ``deadline``."""
        self.failing = self.unconfirmed = False
        if deadline > self.deadline:
            self.deadline = deadline

    def why_expired(self) -> LossReason:
        return "unreachable" if self.failing else "expired"

    def why_lost(self, found: Found, now: float) -> LossReason:
        """The reason for a grant that the engine reports as gone."""
        if found is Found.GONE and now >= self.deadline:
            return self.why_expired()  # it may have expired while the answer was on its way
        if found is Found.MIXED:
            log_later(
                _log,
                logging.ERROR,
                "%s was lost: another program used its name for another kind of lock, which does not see this kind, so "
                "both held it; use different names",
                self.policy.title,
            )
        return _LOST[found]


class DirectGrant(Grant):
    """A grant that was asked for without an attempt (``Core.direct``).

    The attempt is made once it is needed: to renew the lease, to repeat or withdraw a request. Most are over before.
    """

    _attempt: Attempt | None = None
    next_token = _USED_UP  # it has one token, that of its hold: it is never handed over

    def __init__(
        self, policy: Policy, sent: float, token: int, asked: Asked | None, attempt: Attempt | None = None
    ) -> None:
        self._asked = asked  #: None: it has the ``attempt``
        if attempt is not None:
            self._attempt = attempt
        self.name = policy.key
        self.policy = policy
        self.ttl = self.longest_ttl = policy.ttl
        self.deadline = sent + policy.valid_for
        self.due = sent + policy.renew_after
        self.since = sent
        self.last_token = token

    def draw_token(self) -> int:
        return self.last_token

    @property
    def owner(self) -> str:
        asked = self._asked
        return self.attempt.owner if asked is None else asked[0]

    def _make_attempt(self) -> Attempt:
        asked = self._asked
        if asked is None:
            assert self._attempt is not None
            return self._attempt
        # Only one, whatever other threads and signal handlers do: two would not know of each other's requests.
        with asked[2].lock:
            attempt = attempt_of(self.policy, asked)
            if self._attempt is None:
                self._attempt = attempt
            self._asked = None  # after it: another thread has one of the two
            return self._attempt


def _reserve_attributes() -> None:
    """Store once what most grants get later, if at all.

    CPython 3.11 and 3.12 keep the attributes of all instances of a class in one table of names, which takes few more
    names after the first instances were made. Each grant with another one would get a dictionary of its own: 800 bytes
    of each lease that was renewed.
    """
    first = DirectGrant.__new__(DirectGrant)
    for name in ("hold", "_attempt", "early", "watched", "failing"):
        setattr(first, name, None)


_reserve_attributes()
