"""The events, one class for each. Frozen, without references to clients or leases, so an observer may keep them.

Durations are seconds, measured on a clock that counts system suspend. ``at`` is epoch seconds, for people and logs. A
name is the lock's name without the namespace. Names, owners and resources may come from untrusted input.

Calls: each acquire that is not a re-entry ends in exactly one :class:`Acquired`, :class:`Busy` or
:class:`AcquireFailed`; if it had to wait, :class:`Waiting` comes before. Holds: each :class:`Acquired` is followed by
exactly one :class:`Released` or :class:`Lost` of the same token and owner. If a signal handler raises in the middle of
a call, the event that ends the call may be missing. Re-entry sends no request and is not reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from holdfast.errors import LossReason

#: How an acquire ended, if neither with the lock nor with "busy".
Failure = Literal["unavailable", "refused", "unknown", "cancelled"]
#: How a hold ended, if it was not lost.
End = Literal["released", "handed_over", "kept", "dropped", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What all events have in common."""

    kind: ClassVar[str]  #: the event's name in logs and metrics, for example ``"acquired"``
    at: float  #: when it happened, in epoch seconds
    engine: str  #: the engine's scheme: ``"redis"``, ``"sqlite"``, …


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting(Event):
    """An acquire found the lock busy and waits. Its end has ``waited=True``."""

    kind: ClassVar[str] = "waiting"
    name: str
    timeout: float | None  #: as given to the acquire


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquired(Event):
    """The lock is held. ``duration``: from the call to the hold."""

    kind: ClassVar[str] = "acquired"
    name: str
    token: int
    owner: str
    duration: float
    waited: bool
    inherited: bool  #: handed over by another caller of this process, without a request


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy(Event):
    """The lock stayed busy for the whole timeout: AcquireTimeout, or None from ``try_acquire``."""

    kind: ClassVar[str] = "busy"
    name: str
    duration: float
    waited: bool
    timeout: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireFailed(Event):
    """The acquire raised something else.

    ``outcome``: ``unavailable`` (the engine could not be reached), ``refused`` (it answered, and refuses), ``unknown``
    (it may have been granted; it is being withdrawn), ``cancelled`` (the caller was cancelled or interrupted, or the
    client was closed).
    """

    kind: ClassVar[str] = "acquire_failed"
    name: str
    duration: float
    waited: bool
    outcome: Failure
    error: str  #: the exception's type


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewed(Event):
    """A request of the watchdog, or of ``lease.renew()``, has extended leases.

    Leases are renewed in batches: one event for each batch. ``name`` and ``remaining`` are those of the lease that was
    nearest to its deadline when the answer came. A small ``remaining`` is the warning before a loss.
    """

    kind: ClassVar[str] = "renewed"
    name: str
    count: int  #: leases that were extended
    recovered: int  #: of them, those whose last renewal had failed
    duration: float  #: of the request
    remaining: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewalFailed(Event):
    """A request to extend leases got no usable answer. They are still held; it is repeated until their deadline.

    ``name`` and ``remaining`` are those of the lease nearest to its deadline. ``first`` counts the leases whose last
    renewal had succeeded: 0 for a repeated failure.
    """

    kind: ClassVar[str] = "renewal_failed"
    name: str
    count: int
    first: int
    duration: float
    remaining: float
    error: str  #: the failure's type


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost(Event):
    """A hold was lost. ``held``: from the acquire to the loss, as far as this process knows. ``reason`` as
    ``lease.lost_reason``; ``closed`` for what was held when the client was closed."""

    kind: ClassVar[str] = "lost"
    name: str
    token: int
    owner: str
    reason: LossReason
    held: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Released(Event):
    """A hold has ended without a loss. ``held``: from the acquire to the release of the last handle.

    ``outcome``: ``released`` (the engine has confirmed), ``handed_over`` (to another caller of this process), ``kept``
    (the time of ``at_least`` is over: the watchdog releases it), ``dropped`` (no handle was left to release it: the
    watchdog does), ``unknown`` (no answer, or the release was cancelled; it is being withdrawn, and ends at its ttl at
    the latest). ``duration``: of the request.
    """

    kind: ClassVar[str] = "released"
    name: str
    token: int
    owner: str
    held: float
    duration: float
    outcome: End


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken(Event):
    """``break_`` of this client was confirmed. ``held``: whether the lock was held."""

    kind: ClassVar[str] = "broken"
    name: str
    held: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FencePassed(Event):
    """A fence accepted a lease of this client. Not reported for a bare token, whose client is unknown."""

    kind: ClassVar[str] = "fence_passed"
    fence: str  #: the fence's class
    resource: str
    token: int
    owner: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceRefused(Event):
    """A fence refused a lease of this client: StaleToken. Not reported for a bare token."""

    kind: ClassVar[str] = "fence_refused"
    fence: str
    resource: str
    token: int
    owner: str | None
    seen: int  #: the newest token that the fence had accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped(Event):
    """The observer was too slow: ``count`` events since the last ``Dropped`` were discarded. Gauges may be wrong."""

    kind: ClassVar[str] = "dropped"
    count: int


class Observer(Protocol):
    """The argument of ``connect(observer=…)``: a function of one event. Its result is ignored; errors are logged."""

    def __call__(self, event: Event, /) -> object: ...
