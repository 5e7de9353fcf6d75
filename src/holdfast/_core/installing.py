"""How what the engine has granted becomes a hold: the local slot passes to it, and the watchdog looks after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._core import states
from holdfast._core.direct_hold import DirectHold
from holdfast._core.grant import Grant
from holdfast._core.hold import Handle, Hold
from holdfast._core.states import AFTER_GRANT
from holdfast.engines.base import Granted
from holdfast.errors import NotHeld, UsageError

if TYPE_CHECKING:
    from holdfast._core.acquisition import Acquisition
    from holdfast._core.core import Core
    from holdfast._core.policy import Policy


def install(core: Core, hold: Hold, grant: Grant, seeker: Acquisition, handle: Handle | None, watched: bool) -> None:
    """Make a grant into the caller's hold, with ``handle`` as its first one; None: it is a parked hold, which has its
    own already. The local slot passes from ``seeker`` to it. ``watched``: the watchdog knows the grant."""
    policy = hold.policy
    with core.lock:
        if core.closed:
            grant.attempt.unresolved = True  # granted, but too late to be held: have it withdrawn
            raise _closed(policy)
        if handle is None and hold.state is not states.PARKED:
            core.let_go(grant)
            raise NotHeld(f"{policy.title} was released while it waited", name=policy.name)
        grant.hold = hold
        if watched:
            grant.policy = policy  # it was handed over
        if handle is None:
            hold.resume(grant, core.now())
        else:
            handle._hold = hold
            hold.add(handle)
        core.live[grant] = None
        if hold.ends is not None:
            core.watchdog.watch(grant, grant.since)
        elif not watched:
            core.watchdog.look_after(grant)
        # Not before the watchdog knows of it: a signal handler may re-enter it, keep the lease, and raise.
        if not core.queue.move_in(policy.key, seeker, hold) and policy.reentrant:
            core.slotless[policy.place, hold.caller] = hold
        if seeker.suspected:
            _suspect(core, grant, seeker)
    if grant.lost is not None:  # while it was on its way to us
        core.lose_grant(grant, grant.lost)


def install_directly(core: Core, hold: DirectHold, granted: int | Granted) -> bool:
    """The same for a hold that was requested: it has its handle and its slot, and makes its grant itself, once it is
    needed. False: the answer came too late."""
    policy, sent, watchdog = hold.policy, hold.sent, core.watchdog
    hold.since = now = core.now()
    if now >= hold._valid_until:
        return False
    if granted.__class__ is int:
        hold.token = granted
    else:
        hold.token, hold.size = granted.token, granted.size  # type: ignore[union-attr]
    with core.lock:
        if core.closed:
            raise _closed(policy)
        if policy.max_hold is not None:
            hold.end_at(now + policy.max_hold)
            watchdog.look_at(min(sent + policy.renew_after, now + policy.max_hold), policy.ttl, now)
        elif sent < watchdog.covered_from or policy.ttl < watchdog.covered_ttl:
            # From now on, not since it was sent: the watchdog looks by itself before that, and need not be woken.
            watchdog.cover(sent, sent + policy.renew_after, policy.ttl, now)
        if policy.at_engine and policy.reentrant:
            core.slotless[policy.place, hold.caller] = hold
        # Now, and no call between: a signal handler that re-enters it, keeps the lease, and raises, has it renewed.
        core.young[hold] = None
        hold.state = AFTER_GRANT
        if not hold.suspected:
            return True
        _suspect(core, hold.grant, hold)
    if hold.grant.lost is not None:
        core.lose_grant(hold.grant, hold.grant.lost)
    return True


def _closed(policy: Policy) -> UsageError:
    return UsageError("this client is closed", name=policy.name)


def _suspect(core: Core, grant: Grant, seeker: Acquisition | DirectHold) -> None:
    """``break_`` may have taken it before it was a hold."""
    grant.stop_handovers()
    core.watchdog.suspect(grant.name)
    if seeker.broken_token is not None and grant.has_token(seeker.broken_token):
        grant.lost = "broken"
