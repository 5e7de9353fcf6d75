"""When the command is stopped because its lock ends. Pure: from the lease's state and a time to a step.

Times are seconds on the clock of ``_runtime/clock.py``, which goes on while the machine is suspended. The guardian
decides by this; the runner computes the same, and acts if the guardian does not.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

#: SIGKILL is sent this long before the deadline: the command must be dead, not only signalled, when the lease expires.
KILL_BEFORE: Final = 0.2
#: From SIGTERM to SIGKILL if the lock is already lost.
GONE_GRACE: Final = 1.0
#: The longest grace, as a part of the lease: two of three renewals have failed by then.
GRACE_SHARE: Final = 3
DEFAULT_GRACE: Final = 5.0
#: The shortest ttl: grace, the margin of KILL_BEFORE and three renewals must fit in.
SHORTEST_TTL: Final = 3.0
#: The shortest ``--max-hold``: a third of it for grace, the margin of KILL_BEFORE, and the start of the command.
SHORTEST_HOLD: Final = 1.0

#: Reasons for a loss before the deadline: the command still gets time to clean up. With any other reason the deadline
#: has passed.
_TAKEN_AWAY: Final = frozenset({"broken", "stolen", "session"})


class Step(enum.IntEnum):
    """What to do to the command and all its descendants."""

    NOTHING = 0
    TERM = 1
    KILL = 2


class Plan(NamedTuple):
    """When the command must end. ``final``: a renewal does not delay it any more."""

    term_at: float
    kill_at: float
    final: bool = False


def until(deadline: float, grace: float) -> Plan:
    """The plan for a lease that is valid until ``deadline`` unless it is renewed."""
    return Plan(deadline - grace, deadline - KILL_BEFORE)


def decide(plan: Plan, now: float) -> tuple[Step, float]:
    """What is due at ``now``, and when to decide again.

    If the calling process was frozen, ``now`` may be past ``kill_at``: then KILL, without TERM.
    """
    if now >= plan.kill_at:
        return Step.KILL, now
    if now >= plan.term_at:
        return Step.TERM, plan.kill_at
    return Step.NOTHING, plan.term_at


def renewed(plan: Plan, deadline: float, grace: float, taken: Step) -> Plan:
    """The plan after a renewal. Unchanged once SIGTERM was sent, which cannot be undone."""
    return plan if plan.final or taken is not Step.NOTHING else until(deadline, grace)


def lost(plan: Plan, reason: str, now: float) -> Plan:
    """The plan for a lost lease: TERM now and KILL soon if it was taken away; KILL now if its deadline has passed."""
    grace = GONE_GRACE if reason in _TAKEN_AWAY else 0.0
    return Plan(min(plan.term_at, now), min(plan.kill_at, now + grace), final=True)


def ended(plan: Plan, grace: float, now: float) -> Plan:
    """The plan for descendants that the command left behind: none may outlive the lock, which is released next."""
    return Plan(min(plan.term_at, now), min(plan.kill_at, now + grace), final=True)


def fitting_grace(wanted: float | None, lease: float) -> float:
    """``wanted`` (None: the default), but no more than a third of a lease that lasts ``lease`` seconds at its start.

    On an engine with a large margin of its own a lease is shorter than its ttl: a longer grace would stop a command
    whose lock is renewed in time.
    """
    return min(DEFAULT_GRACE if wanted is None else wanted, lease / GRACE_SHARE)
