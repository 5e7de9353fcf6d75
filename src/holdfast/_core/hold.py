"""A hold: a live grant in this process, with its handles and its loss signal."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast._core import call_site, states
from holdfast._core.call_site import CallSite
from holdfast._core.grant import Grant
from holdfast._core.logs import log_later
from holdfast._core.policy import Policy
from holdfast._runtime.base import Event
from holdfast.errors import LockLost, LossReason

if TYPE_CHECKING:
    from holdfast._core.core import Core
    from holdfast.observer.events import End


class Handle(Protocol):
    """A Lease, as far as its hold needs to know it."""

    @property
    def _key(self) -> int:
        """Tells the handles of this process apart."""

    _hold: Hold  #: set before it is one of the hold's handles
    _caller: Hashable  #: of a handle that may be re-entered
    _acquired_at: CallSite | None  #: the line of the user's program

    def _lost_on_release(self, reason: LossReason) -> None: ...


Callback = Callable[[Any], Any]
_log: Final = logging.getLogger("holdfast.lease")
_NO_RETENTIONS: Final = frozenset[int]()
_HELD: Final = states.HELD  # on the way of every acquire and release, see states.py


class HandleRef(weakref.ref[Handle]):
    """A handle, weakly, and what is to be given back when it is garbage."""

    __slots__ = ("acquired_at", "forgotten", "hold", "key")
    hold: Hold
    key: int
    #: Copied when the handle is added: the collector may report a handle as garbage before its finaliser runs.
    acquired_at: CallSite | None
    forgotten: bool  #: set when it becomes garbage and was neither given back nor lost

    def log_forgotten(self) -> None:
        """A ResourceWarning is invisible by default, so there is a line in the log too."""
        log_later(
            _log,
            logging.WARNING,
            "a lease on %s was dropped without release(); it is being released%s. It was %s",
            self.hold.policy.title,
            " with the last of its leases" if self.hold.handles else "",
            call_site.describe(self.acquired_at),
        )


class Attachment(Protocol):
    """What a synchronization primitive keeps with a hold."""

    async def settle(self, *, failed: bool) -> None:
        """Called while it is still held, before its last lease is released. ``failed``: the body raised.

        Raises nothing but an interruption: what it leaves undone must be safe without it.
        """


class Deferred(Protocol):
    """A last step of the critical section that has not been made: the release at the engine is to include it."""

    async def release(self) -> None:
        """Make it, and release the grant of the hold, which is RELEASING already. Raises as a release, or an error of
        the step."""

    async def make(self) -> None:
        """Make it alone: the hold goes on."""


class Scope(Protocol):
    """An open ``async with``: notified of the loss so that it can cancel its task."""

    def on_loss(self) -> None:
        """Called once, from any thread."""

    def is_of_caller(self) -> bool:
        """Whether the running caller has opened it."""


class Hold(states.Life):
    """What all handles of one caller on one name share: token, deadline, loss.

    ``held`` does no I/O: it compares the clock with the deadline. The first caller that finds the deadline passed ends
    the hold; so a holder that was paused learns of the loss with its first look.
    """

    # A hold is made for every acquire. What most never need has its first value here, and is stored once it differs.
    reason: LossReason | None = None
    retentions: frozenset[int] = _NO_RETENTIONS  #: those of ``handles`` that no user has, see retention.py
    retained_until = float("-inf")  #: when the last of them ends
    plain = True  #: until one of ``ends``, ``attachment``, ``deferred`` and ``listeners`` is set for the first time
    ends: float | None = None  #: by ``max_hold``
    scopes: Sequence[Scope] = ()  #: the open ``async with`` blocks, innermost last
    attachment: Attachment | None = None
    deferred: Deferred | None = None
    failed = False  #: a ``with`` block of it was left by an exception
    unreleased: Grant | None = None  #: of a parked hold: what the engine may still have, see parking.py
    listeners: dict[int, tuple[weakref.ref[Handle], list[Callback]]] | None = None
    _changed: Event | None = None
    _grant: Grant | None = None  # None: it is made once it is needed, see direct_hold.py
    _owner: str  # of a hold without a grant; and until when it is valid
    _valid_until: float
    token: int
    since: float  #: when its body may have begun

    def __init__(self, core: Core, grant: Grant, policy: Policy, caller: Hashable, started: float) -> None:
        self.state = states.START
        self.core = core
        self._grant = grant
        self.policy = policy
        self.caller = caller
        self.token = grant.draw_token()
        self.since = started
        #: The handles that were not given back, by their keys. One atomic step gives one back: an interrupted release
        #: has either done it or not.
        self.handles: dict[int, HandleRef] = {}
        if policy.max_hold is not None:
            self.end_at(started + policy.max_hold)

    @property
    def grant(self) -> Grant:
        """What the engine gave."""
        grant = self._grant
        return self._make_grant() if grant is None else grant

    @property
    def owner(self) -> str:
        """The owner under which the engine knows it."""
        grant = self._grant
        return self._owner if grant is None else grant.owner

    def _make_grant(self) -> Grant:
        raise RuntimeError("internal error in holdfast: a hold without a grant")

    @property
    def unanswered_since(self) -> float | None:
        """As of an acquisition; see direct_hold.py."""
        return None

    def withdraw(self) -> None:
        """Of one that is REQUESTED: have the watchdog make sure that its claim holds nothing, now or later."""
        raise RuntimeError("internal error in holdfast: a hold that was never requested")

    def end_at(self, when: float) -> None:
        """It ends then, whatever the engine says."""
        self.plain = False
        self.ends = when

    def add(self, handle: Handle) -> None:
        """One more handle. A lease must know its hold by now: garbage before, it could not be given back.

        Its ``__del__`` has the watchdog drop it. A signal may interrupt that too, and Python ignores what a finaliser
        raises; so the reference is also put on the watchdog's list by a callback that is not written in Python.
        """
        reference = HandleRef(handle, self.core.on_dropped)
        reference.hold = self
        reference.key = key = handle._key
        reference.acquired_at = handle._acquired_at
        self.handles[key] = reference

    def resume(self, grant: Grant, now: float) -> None:
        """It was parked, and is held again by a new grant: with a new token, and with all of ``max_hold``."""
        self._grant = grant
        self.token = grant.draw_token()
        self.since = now
        if self.policy.max_hold is not None:
            self.end_at(now + self.policy.max_hold)
        self.failed = False
        self.advance(states.RESUME)

    def report_end(self, how: End | LossReason) -> None:
        """To the observer. Before the state changes: interrupted in between, it is reported again, without effect."""
        if self.core.reports is not None:
            self.core.reports.end(self, how)

    def listen(self, handle: Handle, callback: Callback) -> bool:
        """Have ``callback(handle)`` called at the loss; False if it is lost already. Under the core's lock."""
        if self.reason is not None:
            return False
        if self.listeners is None:
            self.plain = False
            self.listeners = {}
        # Weak: a strong reference would keep the handle, and so the lock, alive for ever.
        self.listeners.setdefault(handle._key, (weakref.ref(handle), []))[1].append(callback)
        return True

    def take_listeners(self, key: int | None = None) -> list[Callable[[], Any]]:
        """The callbacks of one handle, or of all that are in use: each is called once, so they are taken away."""
        if not self.listeners:
            return []
        if key is None:
            taken, self.listeners = list(self.listeners.values()), {}
        else:
            taken = [self.listeners.pop(key)] if key in self.listeners else []
        handles = ((reference(), callbacks) for reference, callbacks in taken)
        return [partial(callback, handle) for handle, callbacks in handles if handle for callback in callbacks]

    @property
    def deadline(self) -> float:
        """Until when it is valid."""
        end = self.valid_until
        return end if self.ends is None or end < self.ends else self.ends

    @property
    def valid_until(self) -> float:
        """Until when the engine keeps it for its caller."""
        grant = self._grant
        return self._valid_until if grant is None else grant.deadline

    @property
    def held(self) -> bool:
        if self.state is not _HELD:
            return False
        now, grant = self.core.now(), self._grant
        end = self._valid_until if grant is None else grant.deadline
        if now < end and (self.ends is None or now < self.ends):
            return True
        self.core.expire(self, now)
        return False

    @property
    def lost(self) -> LossReason | None:
        """Why it was lost; None while held and after a release."""
        if self.state is states.HELD:
            _ = self.held
        return self.reason

    def loss(self, reason: LossReason | None = None) -> LockLost:
        """The error for its loss."""
        policy = self.policy
        return LockLost(reason or self.lost or "expired", name=policy.name, token=self.token, noun=policy.share)

    @property
    def look_again(self) -> float:
        """When it may have ended without a notification: at its deadline. A parked hold has none."""
        return float("inf") if self.state is states.PARKED else self.deadline

    def why_over(self, now: float) -> LossReason:
        """The reason for a deadline that has passed."""
        if self.ends is not None and now >= self.ends and self.ends <= self.valid_until:
            return "max_hold"
        return self.grant.why_expired()

    def over(self) -> Event:
        """Set when the hold has ended, by loss or by release, or one of its handles was given back."""
        with self.core.lock:
            event = self._changed
            if event is None:
                event = self.core.front.event()
                if self.state is states.HELD or self.state is states.PARKED:
                    self._changed = event
                else:
                    event.set()
        return event

    def notify(self) -> None:
        """The hold has ended, or one of its handles was given back: wake those that wait for either."""
        if self._changed is not None:
            event, self._changed = self._changed, None
            event.set()
