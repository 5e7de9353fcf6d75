"""Clocks: compared with this host's, and by that with each other.

Leases are durations, so a constant difference ends none of them early. Two things depend on the time of day: the order
of fencing tokens after a counter was lost, and how long a restarted Redlock node must not vote.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from holdfast.cli.doctor.facts import Clock, Facts, Node
from holdfast.cli.doctor.finding import Finding, notice, ok, warning

#: Synchronised hosts differ by less than this.
_LARGE: Final = 0.5
#: Scheduling delays may add this much to any measurement.
_INVISIBLE: Final = 0.001


def spread(facts: Facts) -> Clock | None:
    """The largest difference between two of the servers; None if fewer than two reported their time."""
    clocks = [node.clock for node in facts.alive if node.clock is not None]
    if len(clocks) < 2:
        return None
    first, last = min(clocks), max(clocks)
    return Clock(last.offset - first.offset, last.uncertainty + first.uncertainty)


def between_nodes(facts: Facts) -> Iterator[Finding]:
    found = spread(facts)
    if found is None:
        return
    measured = f"the clocks of the servers differ by at most {found.offset + found.uncertainty + _INVISIBLE:.3f} s"
    if _is_large(found):
        timed = [(node.clock.offset, node.name) for node in facts.alive if node.clock is not None]
        yield warning(
            "clocks",
            "",
            f"{measured} ({min(timed)[1]} is behind, {max(timed)[1]} ahead): after a failover or a lost counter, "
            "tokens may be smaller than those before",
            "synchronise the servers' clocks (NTP)",
        )
    else:
        yield ok("clocks", "", measured)


def against_this_host(node: Node, facts: Facts) -> Iterator[Finding]:
    if node.clock is None:
        return
    measured = f"its clock {_compared(node.clock)} this host's"
    if not _is_large(node.clock):
        yield ok("clock", node.name, measured)
    elif facts.engine == "redlock":
        yield warning(
            "clock",
            node.name,
            f"{measured}: redlock's clients propose tokens by the median of the servers' clocks and their own, and two "
            "that are wrong can move it",
            "synchronise the clocks of servers and clients (NTP)",
        )
    else:
        yield notice(
            "clock",
            node.name,
            f"{measured}: harmless as long as it is constant; a step forward ends leases early",
            "synchronise the clocks (NTP), by slewing and not by steps",
        )


def _is_large(clock: Clock) -> bool:
    return abs(clock.offset) - clock.uncertainty > _LARGE


def _compared(clock: Clock) -> str:
    doubt = clock.uncertainty + _INVISIBLE
    if abs(clock.offset) <= doubt:
        return f"agrees, to {abs(clock.offset) + doubt:.3f} s, with"
    return f"is {abs(clock.offset):.3f} s (give or take {doubt:.3f} s) {'ahead of' if clock.offset > 0 else 'behind'}"
