"""The interface that the core reports to. Each method only queues a record: no I/O, no lock, no user code.

A signal handler may raise between any two instructions, and another thread then repairs what was interrupted. So the
two events of a hold are one object, ``_HoldRecord``, which is moved from ``_open`` to the queue in one call of C code:
the acquire is queued exactly once, and so is the end, however often the end is reported.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from holdfast.errors import (
    AcquireTimeout,
    EngineRefused,
    InvalidName,
    LockError,
    LossReason,
    OutcomeUnknown,
    UsageError,
)
from holdfast.observer.delivery import FLUSH_WITHIN, Delivery, ObserverCell
from holdfast.observer.events import (
    Acquired,
    AcquireFailed,
    Broken,
    Busy,
    End,
    Event,
    Failure,
    FencePassed,
    FenceRefused,
    Lost,
    Released,
    RenewalFailed,
    Renewed,
    Waiting,
)

if TYPE_CHECKING:
    from holdfast._core.hold import Hold
    from holdfast._core.policy import Policy
    from holdfast._core.renewed_batch import RenewedBatch
    from holdfast._runtime.base import Runtime
    from holdfast.engines.base import Engine


def open_reports(engine: Engine, front: Runtime, cell: ObserverCell) -> Reports | None:
    """The reports of one open client; None if no thread could be started."""
    delivery = Delivery(engine.scheme, cell, front.event())
    reports = Reports(engine.scheme, front.now, delivery)  # before the thread: its finaliser ends the delivery
    if not delivery.start():
        return None
    cell.attach(delivery)
    return reports


class Reports:
    """Receives the core's reports and queues them for delivery."""

    def __init__(self, engine: str, now: Callable[[], float], delivery: Delivery) -> None:
        self.engine = engine
        self.now = now
        self.delivery = delivery
        self._open: dict[Hold, _HoldRecord] = {}  # reported as acquired, and not yet as ended

    def __del__(self) -> None:
        self.delivery.shut()

    async def flush(self) -> None:
        """Deliver what is queued. Waits for at most half a second."""
        self.delivery.shut()
        await self.delivery.flush(self.now() + FLUSH_WITHIN)

    def attempt(self, policy: Policy, timeout: float | None) -> Attempt:
        """An acquire begins."""
        return Attempt(self, policy, timeout)

    def put(self, kind: type[Event], **facts: object) -> None:
        """Queue one event of this kind."""
        self.delivery.put(partial(kind, at=time.time(), engine=self.engine, **facts))

    # -- holds -----------------------------------------------------------------------------------------------------

    def begin(self, hold: Hold, record: _HoldRecord) -> None:
        """The hold exists. Another thread may have reported its loss already."""
        if self.delivery.has_room():
            self.delivery.queue.extend(map(self._open.setdefault, (hold,), (record,)))
            self.delivery.wake()
            if hold.reason is not None:
                self.end(hold, hold.reason)

    def has_begun(self, hold: Hold, record: _HoldRecord) -> bool:
        """Whether it was reported as acquired."""
        return hold in self._open or record.ended > 0.0

    def releasing(self, hold: Hold, now: float) -> None:
        """The last handle is being released: the hold ends here, whatever the engine answers."""
        record = self._open.get(hold)
        if record is not None:
            record.over = now

    def end(self, hold: Hold, how: End | LossReason) -> None:
        """The hold was released or lost. Only the first report of an end counts."""
        record = self._open.get(hold)
        if record is None:
            return
        record.ended = self.now()
        record.ended_at = time.time()
        record.how = how
        if not self.delivery.has_room():
            self._open.pop(hold, None)
            return
        try:
            self.delivery.queue.extend(map(self._open.pop, (hold,)))
        except KeyError:
            return  # another thread has reported it meanwhile
        self.delivery.wake()

    # -- everything else -------------------------------------------------------------------------------------------

    def batch(self, batch: RenewedBatch, sent: float, now: float) -> None:
        """One request has renewed leases, or failed to."""
        duration = now - sent
        if batch.confirmed:
            nearest = min(batch.confirmed, key=lambda grant: grant.deadline)
            self.put(
                Renewed,
                name=nearest.policy.name,
                count=len(batch.confirmed),
                recovered=len(batch.recovered),
                duration=duration,
                remaining=nearest.deadline - now,
            )
        if batch.failed:
            nearest = min(batch.failed, key=lambda grant: grant.deadline)
            self.put(
                RenewalFailed,
                name=nearest.policy.name,
                count=len(batch.failed),
                first=len(batch.newly_failing),
                duration=duration,
                remaining=nearest.deadline - now,
                error=type(batch.failure).__name__,
            )

    def broken(self, name: str, held: bool) -> None:
        self.put(Broken, name=name, held=held)

    def fence_passed(self, fence: str, resource: str, token: int, owner: str | None) -> None:
        self.put(FencePassed, fence=fence, resource=resource, token=token, owner=owner)

    def fence_refused(self, fence: str, resource: str, token: int, owner: str | None, seen: int) -> None:
        self.put(FenceRefused, fence=fence, resource=resource, token=token, owner=owner, seen=seen)


class Attempt:
    """One acquire, from the call to its end."""

    __slots__ = ("_began", "_hold", "_name", "_reports", "_timeout", "_waited")

    def __init__(self, reports: Reports, policy: Policy, timeout: float | None) -> None:
        self._reports = reports
        self._name = policy.name
        self._timeout = timeout
        self._began = reports.now()
        self._waited = False
        self._hold: tuple[Hold, _HoldRecord] | None = None

    def waiting(self) -> None:
        """The lock was found busy, perhaps not for the first time."""
        if not self._waited:
            self._waited = True
            self._reports.put(Waiting, name=self._name, timeout=self._timeout)

    def acquired(self, hold: Hold, *, inherited: bool) -> None:
        record = _HoldRecord(self._reports, hold, self._began, self._waited, inherited)
        self._hold = hold, record
        self._reports.begin(hold, record)

    def failed(self, error: BaseException) -> None:
        """The acquire ends with ``error``. Not reported if its hold was reported already: the hold's end follows."""
        reports = self._reports
        if self._hold is not None and reports.has_begun(*self._hold):
            return
        facts = {"name": self._name, "duration": reports.now() - self._began, "waited": self._waited}
        if isinstance(error, AcquireTimeout):
            reports.put(Busy, timeout=self._timeout, **facts)
        else:
            reports.put(AcquireFailed, outcome=_outcome(error), error=type(error).__name__, **facts)


def _outcome(error: BaseException) -> Failure:
    if isinstance(error, OutcomeUnknown):
        return "unknown"
    if isinstance(error, (EngineRefused, InvalidName)):
        return "refused"
    if isinstance(error, UsageError) or not isinstance(error, LockError):
        return "cancelled"  # the client was closed; the task was cancelled; a signal handler raised
    return "unavailable"


class _HoldRecord:
    """The two events of one hold. The first call builds the first event, the second call the second."""

    __slots__ = (
        "_acquired", "_began", "_engine", "_inherited", "_name", "_owner", "_since", "_since_at", "_token", "_waited",
        "ended", "ended_at", "how", "over",
    )  # fmt: skip

    def __init__(self, reports: Reports, hold: Hold, began: float, waited: bool, inherited: bool) -> None:
        self._engine = reports.engine
        self._name = hold.policy.name
        self._token = hold.token
        self._owner = hold.grant.claim.owner  # copied now: an engine may reissue the claim with another owner
        self._began = began
        self._since = reports.now()
        self._since_at = time.time()
        self._waited = waited
        self._inherited = inherited
        self._acquired = False
        self.over: float | None = None  #: when the last handle was released
        self.ended = 0.0
        self.ended_at = 0.0
        self.how: End | LossReason = "released"

    def __call__(self) -> Event:
        if not self._acquired:
            self._acquired = True
            return Acquired(
                at=self._since_at,
                engine=self._engine,
                name=self._name,
                token=self._token,
                owner=self._owner,
                duration=self._since - self._began,
                waited=self._waited,
                inherited=self._inherited,
            )
        over = self.ended if self.over is None else self.over
        held = max(0.0, over - self._since)
        how = self.how
        if how == "released" or how == "handed_over" or how == "kept" or how == "dropped" or how == "unknown":
            return Released(
                at=self.ended_at,
                engine=self._engine,
                name=self._name,
                token=self._token,
                owner=self._owner,
                held=held,
                duration=max(0.0, self.ended - over),
                outcome=how,
            )
        return Lost(
            at=self.ended_at,
            engine=self._engine,
            name=self._name,
            token=self._token,
            owner=self._owner,
            reason=how,
            held=held,
        )
