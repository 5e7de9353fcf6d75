"""The hold of a claim that is asked for directly: it is there before the request is sent, and makes its grant late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast._core import releasing, states
from holdfast._core.grant import DirectGrant, Grant, attempt_of
from holdfast._core.hold import Handle, HandleRef, Hold

if TYPE_CHECKING:
    from holdfast._core.core import Core
    from holdfast._core.policy import Policy
    from holdfast.engines.base import Attempt

_HELD: Final = states.HELD
_REQUESTED: Final = states.REQUESTED


class DirectHold(Hold):
    """Made before its claim is asked for (``Core.direct``), with the handle of its caller. Until it is granted, it is
    REQUESTED: it occupies the local slot, and is one of ``Core.acquiring``.

    Most are over before anything else needs their grant. The watchdog, and whatever else needs it, makes it. Until then
    ``Core.young`` has the hold.
    """

    size = 0  #: of a semaphore, see ``Grant.size``
    token = 0
    waiter = None  #: it never waits in the local queue: see ``Acquisition``
    suspected = False  #: ``break_`` may have taken what the engine has granted to it, or is about to
    broken_token: int | None = None  #: the token of that, if it is known

    def __init__(self, core: Core, policy: Policy, handle: Handle, sent: float) -> None:
        self.state = states.REQUESTED
        self.core = core
        self.policy = policy
        self.caller = handle._caller
        self.sent = sent  #: just before the request was
        self._owner = core.new_owner()
        self.description = core.describe()
        self._valid_until = sent + policy.valid_for
        self.key = key = handle._key  #: of the handle that it is made for
        handle._hold = self
        reference = HandleRef(handle, core.on_dropped)  # as in ``add``
        reference.hold = self
        reference.key = key
        reference.acquired_at = handle._acquired_at
        self.handles = {key: reference}

    def attempt(self) -> Attempt:
        """An attempt at the claim that the request was for."""
        return attempt_of(self.policy, (self._owner, self.description, self.core))

    def _make_grant(self) -> Grant:
        core = self.core
        if self.state is _REQUESTED:
            raise RuntimeError("internal error in holdfast: nothing is granted yet")
        with core.lock:
            grant = DirectGrant(self.policy, self.sent, self.token, (self._owner, self.description, core))
            if self.size:
                grant.size = self.size
            if self.ends is not None and self.ends < grant.due:
                grant.due = self.ends
            # No call from here on: a signal handler may make it too, or release the hold.
            if self._grant is None:
                if self.state is _HELD:
                    grant.hold = self
                self._grant = grant
                young = core.young
                if self in young:
                    core.live[grant] = None
                    del young[self]
            return self._grant

    # -- as one of ``Core.acquiring``: until its call has ended ----------------------------------------------------

    @property
    def unanswered_since(self) -> float | None:
        """When the request was sent, unless the engine has answered it."""
        return self.sent if self.state is _REQUESTED else None

    def suspect(self, key: str, broken: int | None) -> None:
        """``break_`` was used on ``key``, on the holder of the token ``broken`` if that is known."""
        if key == self.policy.key:
            self.suspected = True
            if broken is not None:
                self.broken_token = broken

    def notify_again(self) -> None:
        """It never waits for its turn."""

    def withdraw(self) -> None:
        """Have the watchdog make sure that its claim holds nothing, now or later, unless it is held by now."""
        with self.core.lock:
            if self.state is _REQUESTED:
                attempt = self.attempt()
                attempt.unresolved = True
                self.core.withdraw(attempt)

    def finish(self) -> None:
        """A signal has ended its call in the middle of its clean-up. Called by the watchdog; no I/O."""
        self.give_up()

    def give_up(self) -> None:
        """Its call has ended without a result: nothing stays behind, whatever the engine has granted or will grant. Its
        local slot passes to the next. Twice does no harm."""
        core = self.core
        with core.lock:
            if self.state is _HELD:
                core.give_up_hold(self, self.key)
                return
            self.handles.pop(self.key, None)
            if self.state is states.LOST and not core.closed:
                core.withdraw_grant(self.grant)  # interrupted in ``give_up_hold``, before it was
            releasing.abandon(core, self)
