"""Lease: a caller's handle on a hold."""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Callable, Hashable, Sequence
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, Final, NoReturn, Self

from holdfast import current
from holdfast._config.durations import Duration, check_ttl, parse_duration
from holdfast._core import call_site, releasing, renewing, retention, states
from holdfast._core.hold import Hold
from holdfast._runtime.blocking import run, run_rest
from holdfast.errors import LockError, LockLost, LossReason, NotHeld, UsageError

_keys: Final = itertools.count()
_between: Final = call_site.between
_getframe: Final = sys._getframe
_give_back_handle: Final = releasing.give_back_handle
_start: Final = releasing.start


class NotPortable:
    """Refuses pickle and copy: a copy would be a second owner of the same resource."""

    __slots__ = ()
    _remedy = "pass the URL and connect() there"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise UsageError(f"a {type(self).__name__} cannot be pickled or copied: {self._remedy}")


class AnyLease(NotPortable):
    """What a lease on one lock and one on several have in common, for those that work with either."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The lock's name, without the namespace."""
        raise NotImplementedError

    @property
    def held(self) -> bool:
        """Whether the lease is valid at this moment. No I/O."""
        raise NotImplementedError

    @property
    def lost_reason(self) -> LossReason | None:
        """Why the lease was lost, or None."""
        raise NotImplementedError

    @property
    def released(self) -> bool:
        """Whether this lease was released."""
        raise NotImplementedError

    @property
    def _holds(self) -> Sequence[Hold]:
        """What it is a handle of."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise LockLost if lost, NotHeld if released. No I/O."""
        raise NotImplementedError

    async def _until_changed(self, until: float) -> None:
        """Wait for a loss or a release; at ``until`` at the latest. Spurious returns are allowed."""
        raise NotImplementedError

    def _loss(self) -> LockLost:
        """The error for its loss."""
        raise NotImplementedError

    def _annotate(self, error: BaseException) -> None:
        """Add the loss to the body's exception as a note, so that it does not hide that exception."""
        raise NotImplementedError


class BaseLease(AnyLease):
    """What sync and async leases share: everything that does no I/O."""

    __slots__ = ("__weakref__", "_acquired_at", "_caller", "_hold", "_key", "_reason")
    _remedy = "pass the URL and acquire there; to hand over a held lock, lease.detach() it and client.attach() it there"
    _hold: Hold  #: set just before this is one of its handles; a lease exists first, so a hold always has a handle

    def __init__(self) -> None:
        self._key: Final = next(_keys)  #: unique in this process
        self._caller: Hashable = None
        self._reason: LossReason | None = None
        self._acquired_at: call_site.CallSite | None
        try:  # on every acquire: inlined, and _getframe(n) is cheaper than frame.f_back
            frame = _getframe(2)
            code = frame.f_code
            if _between[code.co_filename]:
                frame = _getframe(3)
                code = frame.f_code
                if _between[code.co_filename]:
                    self._acquired_at = call_site.outside(frame)
                    return
            self._acquired_at = (code, frame.f_lasti)
        except ValueError:
            self._acquired_at = None  # the thread's own function is Lock.acquire

    def _ready(self, on_lost: Callable[[Any], Any] | None) -> Self:
        """Called once, after the acquire. ``on_lost`` belongs to this handle, even if the hold is shared."""
        if on_lost is not None:
            self.on_lost(on_lost)
        return self

    @property
    def name(self) -> str:
        """The lock's name, without the namespace."""
        return self._hold.policy.name

    @property
    def token(self) -> int:
        """The fencing token: larger than that of any grant completed before this acquire began. Equal on re-entry."""
        return self._hold.token

    @property
    def owner(self) -> str:
        """The holder's identity, as the engine stores it. Fences compare (token, owner)."""
        return self._hold.owner

    @property
    def mode(self) -> str:
        """How it is held: ``"exclusive"``, ``"read"``, ``"write"`` or ``"permits"``, as in ``Holder.mode``.

        A fence lets a read pass if no newer token was seen, and does not store it; permits have no fencing token.
        """
        return self._hold.policy.mode.label

    @property
    def ttl(self) -> float:
        """Seconds that each renewal makes the lease valid for."""
        return self._hold.grant.ttl

    @property
    def held(self) -> bool:
        """Whether the lease is valid at this moment. No I/O; true at most until the deadline.

        Not guaranteed: that it is still valid one instruction later. Writes that must not come late need a fence.
        """
        return self._key in self._hold.handles and self._hold.held

    @property
    def remaining(self) -> float:
        """Seconds until the deadline, without another renewal; 0.0 if not held."""
        return max(0.0, self._hold.deadline - self._hold.core.front.now()) if self.held else 0.0

    @property
    def lost_reason(self) -> LossReason | None:
        """Why the lease was lost, or None: one of ``errors.LossReason`` (contract C9)."""
        return self._reason if self.released else self._hold.lost

    @property
    def released(self) -> bool:
        """Whether this lease was released. Other leases of the same caller may still hold the lock."""
        return self._key not in self._hold.handles

    def check(self) -> None:
        """Raise LockLost if lost, NotHeld if released. No I/O: cheap enough for every step of a loop."""
        hold = self._hold
        if self._key not in hold.handles:
            raise NotHeld(f"this lease on {hold.policy.title} was released", name=self.name)
        if not hold.held:
            if hold.state is states.PARKED:
                raise NotHeld(f"{hold.policy.title} is not held while its holder waits for a condition", name=self.name)
            raise self._loss()

    def on_lost(self, callback: Callable[[Self], Any]) -> None:
        """Call ``callback(lease)`` exactly once when the lease is lost; immediately if it is lost already.

        Sync clients call it on a separate thread, async clients on the event loop (coroutine functions allowed). What
        it raises is logged. It is not called if the lease is released before, or garbage collected.
        """
        core, hold = self._hold.core, self._hold
        with core.lock:
            if self.released or hold.listen(self, callback):
                return
        core.front.dispatch(partial(callback, self))

    @property
    def _holds(self) -> Sequence[Hold]:
        return (self._hold,)

    async def _until_changed(self, until: float) -> None:
        await self._hold.over().wait(min(until, self._hold.look_again))

    def _loss(self) -> LockLost:
        return self._hold.loss()

    def _annotate(self, error: BaseException) -> None:
        if (reason := self.lost_reason) is not None:
            error.add_note(f"{self._hold.policy.share} {self.name!r} lost: {reason}")

    def _lost_on_release(self, reason: LossReason) -> None:
        """The release found the loss. Stored here, since this handle is no longer on the hold's list."""
        self._reason = reason

    def _for_renewal(self, ttl: Duration | None) -> tuple[Hold, float]:
        self.check()
        return self._hold, self._hold.grant.ttl if ttl is None else check_ttl(ttl)

    def _keep_for(self, seconds: float) -> None:
        """Keep the lock until ``seconds`` after its grant, even if all handles are released before."""
        retention.retain(self._hold.core, self._hold, seconds)

    def __del__(self) -> None:
        try:
            if self._key not in self._hold.handles:
                return  # given back
        except AttributeError:
            return  # never acquired
        hold = self._hold
        handle = hold.handles.get(self._key)
        if handle is None or (hold.state is not states.HELD and hold.reason in ("closed", "forked")):
            return
        forgotten = hold.reason is None and hold.state is not states.REQUESTED
        if forgotten:
            handle.forgotten = True
        hold.core.watchdog.abandoned(handle)
        if forgotten:
            warnings.warn(
                f"a lease on {hold.policy.title} was dropped without release(); it is being released. It was "
                f"{call_site.describe(self._acquired_at)}",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )

    def __repr__(self) -> str:
        if self.released:
            state = "released"
        elif self.held:
            state = "held"
        else:
            state = "waiting" if self._hold.state is states.PARKED else f"lost: {self.lost_reason}"
        return f"<{type(self).__name__} {self._hold.policy.shown} token={self.token} {state}>"


class Loss:
    """The loss of a lease, as an event: ``if lease.lost``, ``lease.lost.wait(5)``. No I/O."""

    __slots__ = ("_lease",)

    def __init__(self, lease: AnyLease) -> None:
        self._lease = lease

    def is_set(self) -> bool:
        """Whether the lease is lost."""
        return self._lease.lost_reason is not None

    __bool__ = is_set

    def wait(self, timeout: Duration | None = None) -> bool:
        """Wait for the loss: True if lost, False at the timeout or once the lease is released."""
        return run(until_lost(self._lease, timeout))


async def until_lost(lease: AnyLease, timeout: Duration | None) -> bool:
    """Wait until ``lease`` is lost (True), or it is released or ``timeout`` has passed (False)."""
    if isinstance(timeout, (str, timedelta)):  # a number is taken as threading.Event.wait does, also below 0
        timeout = parse_duration(timeout, what="timeout")
    now = lease._holds[0].core.front.now
    until = float("inf") if timeout is None else now() + timeout
    while (lease.held or _waits(lease)) and now() < until:
        await lease._until_changed(until)
    return lease.lost_reason is not None


def _waits(lease: AnyLease) -> bool:
    """Whether its caller waits for a condition: not held now, but neither lost nor released."""
    return not lease.released and any(hold.state is states.PARKED for hold in lease._holds)


class LeaseBlock(AnyLease):
    """``with lease:``, for a lease on one lock and for one on several."""

    __slots__ = ()

    def release(self) -> None:
        """Release this lease. Idempotent; callable from any thread."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self.check()
        current.enter(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        current.leave(self)
        if error is None:
            self.release()
            return
        for hold in self._holds:
            hold.failed = True
        try:
            self.release()
        except LockError as failure:
            self._annotate(error)
            if not isinstance(failure, LockLost):
                error.add_note(str(failure))


class Lease(LeaseBlock, BaseLease):
    """A held lock. A context manager; leaving it releases.

    Leases of one caller on one name share one hold: the same token, deadline and loss. The lock is released with the
    last of them. Not guaranteed: that a loss stops your code. It is reported (``lost``, ``on_lost``, ``check()``,
    ``LockLost`` on exit), and a fence refuses late writes.
    """

    __slots__ = ()

    @property
    def lost(self) -> Loss:
        """The loss as an event: ``is_set()``, ``wait(timeout)``, ``bool()``."""
        return Loss(self)

    def renew(self, ttl: Duration | None = None) -> None:
        """Make the lease valid for at least ``ttl`` seconds from now; later renewals use this ttl. Never shortens."""
        run(renewing.renew(self._hold.core, *self._for_renewal(ttl)))

    def detach(self) -> str:
        """End this lease, keep the lock, and return a ticket: any process takes it over by ``client.attach(ticket)``.

        The lease ends before the ticket exists. The ticket is a secret: a process that has it can take the lock, once.
        The lock is not renewed meanwhile: it is free when its ttl is over. Raises LockLost or NotHeld, OutcomeUnknown
        if no answer came (there is no ticket then), and UsageError if other leases of this caller share the hold, or
        the engine does not give ``detach``. If interrupted, there is no ticket, and the lock is released, unless this
        lease is still ``held``.
        """
        from holdfast.primitives import detaching  # imported here: few programs need it

        detachment = detaching.Detachment(self)
        try:
            return run(detachment.run())
        except BaseException:  # also a signal that comes between its end and this: the ticket would be lost
            detachment.withdraw()
            raise

    def release(self) -> None:
        """Release this lease. Idempotent; callable from any thread.

        Raises LockLost if it was lost, OutcomeUnknown if the engine could not be reached before the lease expired.
        """
        hold = self._hold
        if len(hold.handles) > 1 and _give_back_handle(hold, self):
            return
        if self._key in hold.handles:
            run_rest(_start(hold.core, hold, self))
