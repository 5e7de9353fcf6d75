"""The hold of a claim that was asked for directly: most of these are over before anything else needs their grant."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from holdfast._core import states
from holdfast._core.grant import DirectGrant, Grant, attempt_of
from holdfast._core.hold import HandleRef, Hold

if TYPE_CHECKING:
    from holdfast._core.core import Core
    from holdfast._core.policy import Policy
    from holdfast.engines.base import Attempt

_HELD: Final = states.HELD


class DirectHold(Hold):
    """Made before its claim is asked for (``Core.direct``); it is held from when it has a handle and a token.

    The watchdog, and whatever else needs its grant, makes it. Until then ``Core.young`` has the hold.
    """

    size = 0  #: of a semaphore, see ``Grant.size``

    def __init__(
        self, core: Core, policy: Policy, caller: Hashable, sent: float, owner: str, description: bytes
    ) -> None:
        self.state = states.START
        self.core = core
        self.policy = policy
        self.caller = caller
        self.sent = sent  #: just before the request was
        self._owner = owner
        self.description = description
        self._valid_until = sent + policy.valid_for
        self.handles: dict[int, HandleRef] = {}

    def attempt(self) -> Attempt:
        """An attempt at the claim that the request was for."""
        return attempt_of(self.policy, (self._owner, self.description, self.core))

    def _make_grant(self) -> Grant:
        core = self.core
        with core.lock:
            grant = DirectGrant(self.policy, self.sent, self.token, (self._owner, self.description, core))
            if self.size:
                grant.size = self.size
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
