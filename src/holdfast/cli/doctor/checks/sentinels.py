"""Sentinels: whether they agree, and whether they can fail over."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.cli.doctor.facts import Facts, Sentinel
from holdfast.cli.doctor.finding import Finding, notice, ok, problem, warning


def reachable(sentinel: Sentinel) -> Iterator[Finding]:
    if sentinel.failure:
        yield problem(
            "sentinel",
            sentinel.name,
            f"this sentinel cannot be used: {sentinel.failure}",
            "start it, or check its address, its password and the master's name",
        )
    elif sentinel.flags & {"s_down", "o_down"}:
        yield problem(
            "sentinel",
            sentinel.name,
            f"it considers the master {sentinel.master} down",
            "wait for the failover; if none comes, look at the quorum and at the replicas",
        )
    elif sentinel.withheld:
        yield notice(
            "sentinel",
            sentinel.name,
            f"reports only the master's address, {sentinel.master} (SENTINEL MASTER): {sentinel.withheld}",
            "allow SENTINEL MASTER, SENTINEL REPLICAS and SENTINEL CKQUORUM, or run the doctor as an operator",
        )
    else:
        yield ok("sentinel", sentinel.name, f"knows the master, {sentinel.master}, and {sentinel.replicas} replicas")


def agreement(facts: Facts) -> Iterator[Finding]:
    masters = {sentinel.master for sentinel in _answering(facts)}
    if len(masters) > 1:
        yield problem(
            "agreement",
            "",
            f"the sentinels name different masters: {', '.join(sorted(masters))}",
            "wait if a failover is under way; else SENTINEL RESET on those that are wrong",
        )
    elif masters:
        yield ok("agreement", "", f"the sentinels that answer agree on the master: {masters.pop()}")


def quorum(facts: Facts) -> Iterator[Finding]:
    answering = [sentinel for sentinel in _answering(facts) if not sentinel.withheld]
    if not answering:
        return
    verdicts = [sentinel for sentinel in answering if sentinel.ckquorum]
    known, wanted = min(one.sentinels for one in answering), max(one.quorum for one in answering)
    if verdicts:
        yield problem(
            "quorum", "", f"no failover is possible now: {verdicts[0].ckquorum}", "bring the missing sentinels back"
        )
    elif wanted > known:
        yield problem(
            "quorum",
            "",
            f"the quorum is {wanted}, and only {known} sentinels are known: no failover is possible",
            "add sentinels, or lower the quorum (SENTINEL SET)",
        )
    else:
        yield ok("quorum", "", f"{wanted} of {known} sentinels decide that the master is down")


def enough(facts: Facts) -> Iterator[Finding]:
    answering = [sentinel for sentinel in _answering(facts) if not sentinel.withheld]
    if not answering:
        return
    known = min(one.sentinels for one in answering)
    if known < 3:
        yield warning(
            "sentinels",
            "",
            f"{known} sentinels: when one is lost, the rest is no majority and does not fail over",
            "run three, on three hosts",
        )
    if any(one.replicas == 0 for one in answering):
        yield warning("replicas", "", "there is no replica to fail over to", "add a replica")


def _answering(facts: Facts) -> list[Sentinel]:
    return [sentinel for sentinel in facts.sentinels if not sentinel.failure]
