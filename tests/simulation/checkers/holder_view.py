"""The holders' side of the invariants: what each process holds by its own clock, and how long each caller waits.

Whether a hold is valid is computed here from state and deadline, never by ``hold.held``: the check must not change the
state of the process (a frozen process cannot run it).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from holdfast._core.hold import Hold
from holdfast._core.lease_time import RENEWALS_PER_TTL
from holdfast._core.states import State
from tests.simulation.checkers.history import Violation
from tests.simulation.world.faults import Faults
from tests.simulation.world.runtime import Process, Task

#: A loss timer checks at least once a second; the rest is the time that its wake-up may take.
_REPORTED_WITHIN = 1.2


@dataclass(eq=False)
class TrackedHold:
    """One hold, from the return of its first acquire to the call of its last release."""

    hold: Hold
    process: Process
    name: str
    handles: int = 1

    @property
    def owner(self) -> str:
        return self.hold.owner

    def is_valid(self) -> bool:
        hold = self.hold
        return hold.state is State.HELD and self.process.now() < hold.deadline

    def __str__(self) -> str:
        return f"{self.process.name} token {self.hold.token} owner …{self.owner[-4:]}"


class Claimed(Protocol):
    """What an acquire asks the engine for. Its owner may change."""

    @property
    def owner(self) -> str: ...


@dataclass(eq=False)
class Attempt:
    """An acquire that is under way."""

    process: Process
    name: str
    timeout: float | None
    began: float
    task: Task | None
    floor: int  #: the largest token whose grant was complete before this attempt began
    claimed: Claimed | None = None  #: what the engine was asked for, if anything was


@dataclass
class HolderView:
    """Checks invariants I1 (exclusion), I5 (tokens as callers see them), I6 (progress) and I7 (losses are reported)."""

    faults: Faults
    ttl: float
    tolerance: float  #: the time that invariant I6 allows between the end of one hold and the next grant
    live: dict[str, list[TrackedHold]] = field(default_factory=dict)
    waiting: dict[Attempt, None] = field(default_factory=dict)
    #: Owners whose lock was taken away outside the engine's declared model, and when.
    displaced: dict[str, float] = field(default_factory=dict)
    grants: int = 0
    _known: dict[Hold, TrackedHold] = field(default_factory=dict)
    _largest: dict[str, int] = field(default_factory=dict)
    _idle_since: dict[str, float] = field(default_factory=dict)
    _forgotten_by: dict[str, set[str]] = field(default_factory=dict)
    _tokens: dict[tuple[str, int], str] = field(default_factory=dict)

    # -- reported by the workload --------------------------------------------------------------------------------------

    def attempt(self, process: Process, name: str, timeout: float | None) -> Attempt:
        simulator = process.simulator
        attempt = Attempt(process, name, timeout, simulator.time, simulator.current, self._largest.get(name, 0))
        self.waiting[attempt] = None
        return attempt

    def claimed(self, task: Task | None, claimed: Claimed) -> None:
        """``task`` sends ``claimed`` to the engine."""
        for attempt in self.waiting:
            if attempt.task is task:
                attempt.claimed = claimed

    def failed(self, attempt: Attempt) -> None:
        """An acquire raised, was cancelled, or returned (then this has no effect)."""
        self.waiting.pop(attempt, None)

    def acquired(self, attempt: Attempt, hold: Hold) -> TrackedHold:
        """An acquire returned ``hold``: a new hold, or another handle of a known hold."""
        del self.waiting[attempt]
        known = self._known.get(hold)
        if known is not None:
            return self._entered_again(known)
        tracked = self._known[hold] = TrackedHold(hold, attempt.process, attempt.name)
        self.check_token(tracked, attempt.floor)
        if hold.state is State.HELD and not tracked.is_valid():
            raise Violation("I1", f"{tracked}: acquire returned a lease without any time left")
        self._largest[attempt.name] = max(hold.token, self._largest.get(attempt.name, 0))
        self.grants += 1
        self.live.setdefault(attempt.name, []).append(tracked)
        return tracked

    def check_token(self, tracked: TrackedHold, floor: int) -> None:
        """``floor``: the largest token whose grant was complete before the acquire began."""
        token = tracked.hold.token
        if token <= floor:
            raise Violation("I5", f"{tracked}: a grant with the token {floor} was complete before this began")
        if self._tokens.setdefault((tracked.name, token), tracked.owner) != tracked.owner:
            raise Violation("I5", f"{tracked}: another owner was given the same token")

    def _entered_again(self, tracked: TrackedHold) -> TrackedHold:
        if tracked.handles == 0:
            # Its last handle was dropped, which the core has not noticed yet: it may still be re-entered.
            if not tracked.is_valid():
                raise Violation("I13", f"{tracked}: entered again after its end")
            self.live[tracked.name].append(tracked)
        tracked.handles += 1
        return tracked

    def releases(self, tracked: TrackedHold) -> None:
        """A handle is about to be released; with the last one the hold ends."""
        tracked.handles -= 1
        if tracked.handles == 0:
            self.live[tracked.name].remove(tracked)

    def died(self, process: Process) -> None:
        """A crashed process holds nothing and waits for nothing."""
        for name, holders in self.live.items():
            self.live[name] = [tracked for tracked in holders if tracked.process is not process]
        self.waiting = {attempt: None for attempt in self.waiting if attempt.process is not process}

    # -- reported by the views of the servers --------------------------------------------------------------------------

    def taken(self, owner: str, server: str, *, lost: bool, time: float) -> None:
        """``server`` lost the lock of ``owner``, outside the model. ``lost``: ``owner`` no longer has a majority."""
        self._forgotten_by.setdefault(owner, set()).add(server)
        if lost:
            self.displaced.setdefault(owner, time)

    def given(self, owner: str, server: str, *, held: bool) -> None:
        """``server`` granted the lock to ``owner``, perhaps again. ``held``: ``owner`` now has a majority."""
        self._forgotten_by.get(owner, set()).discard(server)
        if held:
            self.displaced.pop(owner, None)

    def forgotten(self, owner: str) -> bool:
        """Whether guarantees do not apply, because a server has lost what it had granted to ``owner``."""
        return bool(self._forgotten_by.get(owner))

    def wanted(self) -> set[str]:
        """The owners that hold a lock or wait for one."""
        claims = {attempt.claimed.owner for attempt in self.waiting if attempt.claimed is not None}
        return claims | {tracked.owner for holders in self.live.values() for tracked in holders}

    # -- after every step ----------------------------------------------------------------------------------------------

    def look(self, time: float) -> None:
        for name, holders in self.live.items():
            held = [tracked for tracked in holders if tracked.is_valid()]
            if len(held) > 1:
                self.check_exclusion(name, held)
            if self.faults.healed:
                self._check_progress(name, bool(held), time)
            for tracked in holders:
                self._check_reports(tracked, time)

    def check_exclusion(self, name: str, held: list[TrackedHold]) -> None:
        honest = [tracked for tracked in held if not self.forgotten(tracked.owner)]
        if len(honest) > 1:
            raise Violation("I1", f"{name} is held by " + " and by ".join(map(str, honest)))

    def _check_progress(self, name: str, held: bool, time: float) -> None:
        waits = any(attempt.name == name for attempt in self.waiting)
        if held or not waits:
            self._idle_since[name] = time
            return
        since = max(self._idle_since.get(name, time), self.faults.last_effect)
        if time - since > self.tolerance:
            raise Violation("I6", f"{name}: no process has held it since {since:.3f}, yet it was granted to no waiter")

    def _check_reports(self, tracked: TrackedHold, time: float) -> None:
        hold, process = tracked.hold, tracked.process
        if hold.state is not State.HELD:
            return
        overdue = process.now() - hold.deadline
        if overdue > _REPORTED_WITHIN and not process.paused and time - process.resumed > _REPORTED_WITHIN:
            raise Violation("I7", f"{tracked}: its deadline passed {overdue:.3f} s ago, and that was not reported")
        displaced = self.displaced.get(tracked.owner)
        if displaced is None or overdue >= 0:
            return
        prompt = hold.policy.renew and self.faults.disturbed(process) < displaced - _REPORTED_WITHIN
        if time - displaced > (self.ttl / RENEWALS_PER_TTL + _REPORTED_WITHIN if prompt else self.ttl):
            raise Violation("I7", f"{tracked}: taken away at {displaced:.3f}, and still counts as held")
