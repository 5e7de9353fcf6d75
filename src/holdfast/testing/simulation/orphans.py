"""I8, no orphans: a lock that nobody wants any more is given back within a moment, unless a fault was in the way."""

from __future__ import annotations

from holdfast._core.core import Core
from holdfast._core.policy import Policy
from holdfast._runtime.simulated import Process
from holdfast.engines.base import Claim
from holdfast.testing.simulation.beliefs import Beliefs
from holdfast.testing.simulation.engine_view import EngineView
from holdfast.testing.simulation.faults import Faults
from holdfast.testing.simulation.history import Violation

#: A release or withdrawal that meets no fault takes a few round trips.
_GRACE = 0.5


class Orphans:
    """Looks at the server for locks whose owners have given them up."""

    def __init__(self, beliefs: Beliefs, view: EngineView, faults: Faults) -> None:
        self._beliefs = beliefs
        self._view = view
        self._faults = faults
        self._processes: dict[str, Process] = {}
        self._before_flush: set[str] = set()

    def listen(self, core: Core, process: Process) -> None:
        """Hear of every claim that ``core`` makes."""
        make = core.new_claim

        def new_claim(policy: Policy, *, polite: bool) -> Claim:
            claim = make(policy, polite=polite)
            self._processes[claim.owner] = process
            self._beliefs.claimed(process.simulator.current, claim.owner)
            return claim

        core.new_claim = new_claim  # type: ignore[method-assign]

    def tombstones_lost(self) -> None:
        """All keys vanish: a late duplicate of an older claim may now take effect, and end by itself at its ttl."""
        self._before_flush.update(self._processes)

    def look(self) -> None:
        for name in self._view.names:
            owner = self._view.owner(name)
            given_up = None if owner is None else self._beliefs.given_up.get(owner)
            if owner is None or given_up is None or owner in self._before_flush:
                continue
            process = self._processes[owner]
            if process.dead or self._faults.disturbed(process) >= given_up:
                continue
            if any(belief.owner == owner for belief in self._beliefs.live.get(name, ())):
                continue  # handed on inside the process
            if process.simulator.time - given_up > _GRACE:
                raise Violation(
                    "I8", f"{name}: {process.name} gave …{owner[-4:]} up at {given_up:.3f}, and it is still there"
                )
