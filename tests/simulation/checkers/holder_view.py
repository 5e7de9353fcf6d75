"""The holders' side of the invariants: who believes to hold what, and who has waited for how long.

Belief is computed here from state and deadline, never by asking ``hold.held``: a look from outside must not change what
is looked at (a frozen process cannot look).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast._core.hold import Hold
from holdfast._core.lease_time import RENEWALS_PER_TTL
from holdfast._core.states import State
from holdfast.engines.base import Claim
from tests.simulation.checkers.history import Violation
from tests.simulation.world.faults import Faults
from tests.simulation.world.runtime import Process, Task

#: A loss timer looks at least once a second; the rest is the time that its wake-up may take.
_TOLD_WITHIN = 1.2


@dataclass(eq=False)
class Belief:
    """One hold, from the return of its first acquire to the call of its last release."""

    hold: Hold
    process: Process
    name: str
    handles: int = 1

    @property
    def owner(self) -> str:
        return self.hold.grant.claim.owner

    def now(self) -> bool:
        hold = self.hold
        return hold.state is State.HELD and self.process.now() < hold.deadline

    def __str__(self) -> str:
        return f"{self.process.name} token {self.hold.token} owner …{self.owner[-4:]}"


@dataclass(eq=False)
class Attempt:
    """One acquire under way."""

    process: Process
    name: str
    timeout: float | None
    began: float
    task: Task | None
    floor: int  #: the largest token whose grant was complete before this attempt began
    claim: Claim | None = None  #: that it made, if any


@dataclass
class Beliefs:
    """Checks I1 (exclusion), I5 (tokens as callers see them), I6 (progress) and I7 (loss is told), step by step."""

    faults: Faults
    ttl: float
    patience: float  #: what I6 allows between the end of one belief and the next grant
    live: dict[str, list[Belief]] = field(default_factory=dict)
    waiting: dict[Attempt, None] = field(default_factory=dict)
    #: Owners whose lock was taken away outside the engine's declared model, and when.
    robbed: dict[str, float] = field(default_factory=dict)
    grants: int = 0
    _known: dict[Hold, Belief] = field(default_factory=dict)
    _largest: dict[str, int] = field(default_factory=dict)
    _idle_since: dict[str, float] = field(default_factory=dict)
    _wronged: dict[str, set[str]] = field(default_factory=dict)
    _tokens: dict[tuple[str, int], str] = field(default_factory=dict)

    # -- told by the workload ------------------------------------------------------------------------------------------

    def attempt(self, process: Process, name: str, timeout: float | None) -> Attempt:
        simulator = process.simulator
        attempt = Attempt(process, name, timeout, simulator.time, simulator.current, self._largest.get(name, 0))
        self.waiting[attempt] = None
        return attempt

    def claimed(self, task: Task | None, claim: Claim) -> None:
        """The attempt of ``task`` asks the engine with ``claim``."""
        for attempt in self.waiting:
            if attempt.task is task:
                attempt.claim = claim

    def failed(self, attempt: Attempt) -> None:
        """An acquire raised, was cancelled, or returned (then there is nothing left to do)."""
        self.waiting.pop(attempt, None)

    def acquired(self, attempt: Attempt, hold: Hold) -> Belief:
        """An acquire returned ``hold``: a new belief, or one more handle of an old one."""
        del self.waiting[attempt]
        known = self._known.get(hold)
        if known is not None:
            return self._entered_again(known)
        belief = self._known[hold] = Belief(hold, attempt.process, attempt.name)
        if hold.token <= attempt.floor:
            raise Violation("I5", f"{belief}: a grant with the token {attempt.floor} was complete before this began")
        if self._tokens.setdefault((attempt.name, hold.token), belief.owner) != belief.owner:
            raise Violation("I5", f"{belief}: another owner was given the same token")
        if hold.state is State.HELD and not belief.now():
            raise Violation("I1", f"{belief}: acquire returned a lease without any time left")
        self._largest[attempt.name] = max(hold.token, self._largest.get(attempt.name, 0))
        self.grants += 1
        self.live.setdefault(attempt.name, []).append(belief)
        return belief

    def _entered_again(self, belief: Belief) -> Belief:
        if belief.handles == 0:
            # Its last handle was forgotten, and nobody has noticed yet: it may still be entered.
            if not belief.now():
                raise Violation("I13", f"{belief}: entered again after its end")
            self.live[belief.name].append(belief)
        belief.handles += 1
        return belief

    def releases(self, belief: Belief) -> None:
        """A handle is about to be released; with the last one belief is over."""
        belief.handles -= 1
        if belief.handles == 0:
            self.live[belief.name].remove(belief)

    def died(self, process: Process) -> None:
        """A crashed process believes nothing and waits for nothing."""
        for name, beliefs in self.live.items():
            self.live[name] = [belief for belief in beliefs if belief.process is not process]
        self.waiting = {attempt: None for attempt in self.waiting if attempt.process is not process}

    # -- told by those who see the servers -----------------------------------------------------------------------------

    def taken(self, owner: str, server: str, *, lost: bool, time: float) -> None:
        """``server`` lost what ``owner`` had there outside the model; ``lost``: so it has not got the lock any more."""
        self._wronged.setdefault(owner, set()).add(server)
        if lost:
            self.robbed.setdefault(owner, time)

    def given(self, owner: str, server: str, *, held: bool) -> None:
        """``owner`` was granted it at ``server``, perhaps again; ``held``: so it has the lock (again)."""
        self._wronged.get(owner, set()).discard(server)
        if held:
            self.robbed.pop(owner, None)

    def wronged(self, owner: str) -> bool:
        """Whether no promise binds, because some server has forgotten what it had granted to ``owner``."""
        return bool(self._wronged.get(owner))

    def wanted(self) -> set[str]:
        """The owners who hold something or try to."""
        claims = {attempt.claim.owner for attempt in self.waiting if attempt.claim is not None}
        return claims | {belief.owner for beliefs in self.live.values() for belief in beliefs}

    # -- after every step ----------------------------------------------------------------------------------------------

    def look(self, time: float) -> None:
        for name, beliefs in self.live.items():
            held = [belief for belief in beliefs if belief.now()]
            if len(held) > 1:
                self._check_exclusion(name, held)
            if self.faults.healed:
                self._check_progress(name, bool(held), time)
            for belief in beliefs:
                self._check_told(belief, time)

    def _check_exclusion(self, name: str, held: list[Belief]) -> None:
        honest = [belief for belief in held if not self.wronged(belief.owner)]
        if len(honest) > 1:
            raise Violation("I1", f"{name} is believed held by " + " and by ".join(map(str, honest)))

    def _check_progress(self, name: str, held: bool, time: float) -> None:
        waits = any(attempt.name == name for attempt in self.waiting)
        if held or not waits:
            self._idle_since[name] = time
            return
        since = max(self._idle_since.get(name, time), self.faults.last_effect)
        if time - since > self.patience:
            raise Violation("I6", f"{name}: nobody has held it since {since:.3f}, yet it was granted to no waiter")

    def _check_told(self, belief: Belief, time: float) -> None:
        hold, process = belief.hold, belief.process
        if hold.state is not State.HELD:
            return
        overdue = process.now() - hold.deadline
        if overdue > _TOLD_WITHIN and not process.paused and time - process.resumed > _TOLD_WITHIN:
            raise Violation("I7", f"{belief}: its deadline passed {overdue:.3f} s ago and nobody told")
        robbed = self.robbed.get(belief.owner)
        if robbed is None or overdue >= 0:
            return
        prompt = hold.policy.renew and self.faults.disturbed(process) < robbed - _TOLD_WITHIN
        if time - robbed > (self.ttl / RENEWALS_PER_TTL + _TOLD_WITHIN if prompt else self.ttl):
            raise Violation("I7", f"{belief}: taken away at {robbed:.3f}, and still believed in")
