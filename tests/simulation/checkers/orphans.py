"""Invariant I8, no orphans: a lock that no caller uses is withdrawn soon, on every server that no fault isolates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast._core.core import Core
from holdfast._core.policy import Policy
from holdfast.engines.base import Attempt, Claim
from tests.simulation.checkers.history import Violation
from tests.simulation.checkers.holder_view import HolderView
from tests.simulation.world.node import Node
from tests.simulation.world.runtime import Process


@dataclass
class _Asking:
    """A claim without an attempt."""

    owner: str


class Orphans:
    """Finds locks on the servers that their owners have given up.

    ``grace``: how long a withdrawal may take. ``skipped_for``: how long after a fault a client may skip a server.
    """

    def __init__(self, holders: HolderView, nodes: Sequence[Node], *, grace: float, skipped_for: float) -> None:
        self._holders = holders
        self._nodes = nodes
        self._grace = grace
        self._skipped_for = skipped_for
        self._processes: dict[str, Process] = {}  # by the client's part of an owner: it may continue with a new number
        self._since: dict[tuple[str, str], float] = {}  # by server and owner: since when no caller uses the lock
        self._last_look = 0.0

    def listen(self, core: Core, process: Process) -> None:
        """Records every attempt of ``core``, and every owner that asks without one, until it has one."""
        make, make_later, name = core.new_attempt, core.session.attempt, core.new_owner

        def new_owner() -> str:
            owner = name()
            self._processes[_client(owner)] = process
            self._holders.claimed(process.simulator.current, _Asking(owner))
            return owner

        def new_attempt(policy: Policy, *, non_barging: bool, under: Attempt | None = None) -> Attempt:
            attempt = make(policy, non_barging=non_barging, under=under)
            self._processes[_client(attempt.owner)] = process
            self._holders.claimed(process.simulator.current, attempt)
            return attempt

        def later_attempt(claim: Claim) -> Attempt:
            attempt: Attempt = make_later(claim)
            self._holders.claimed(process.simulator.current, attempt)
            return attempt

        core.new_attempt = new_attempt  # type: ignore[method-assign]
        core.session.attempt = later_attempt  # type: ignore[method-assign]
        core.new_owner = new_owner  # type: ignore[method-assign]

    def look(self, time: float) -> None:
        wanted = self._holders.wanted()
        since: dict[tuple[str, str], float] = {}
        for node in self._nodes:
            for name in node.view.names:
                for owner in node.view.owners(name):
                    if owner not in wanted:
                        # It was given up after the last check.
                        place = (node.name, owner)
                        since[place] = self._since.get(place, self._last_look)
                        self._check(node, name, owner, since[place], time)
        self._since, self._last_look = since, time

    def _check(self, node: Node, name: str, owner: str, given_up: float, time: float) -> None:
        process = self._processes[_client(owner)]
        if process.dead or node.view.may_keep(owner) or node.faults.disturbed(process) + self._skipped_for >= given_up:
            return
        if time - given_up > self._grace:
            raise Violation(
                "I8",
                f"{name}: {process.name} gave …{owner[-4:]} up after {given_up:.3f}, and {node.name} still has it",
            )


def _client(owner: str) -> str:
    return owner.partition(":")[0]
