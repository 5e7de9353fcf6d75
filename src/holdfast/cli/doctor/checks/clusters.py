"""The cluster as a whole: whether all slots are served, and stay served after the next failure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from holdfast.cli.doctor.facts import Facts
from holdfast.cli.doctor.finding import Finding, notice, ok, problem, warning

_SLOTS: Final = 16384


def state(facts: Facts) -> Iterator[Finding]:
    if facts.cluster is None:
        return
    if facts.cluster.withheld:
        yield notice(
            "cluster",
            "",
            f"the cluster's state and its failed nodes could not be examined: {facts.cluster.withheld}",
            "allow CLUSTER INFO and CLUSTER NODES, or run the doctor as an operator",
        )
    elif facts.cluster.state != "ok":
        yield problem(
            "cluster",
            "",
            f"the cluster's state is {facts.cluster.state}: locks are refused (CLUSTERDOWN)",
            "bring the missing masters back, or cover their slots",
        )
    else:
        yield ok("cluster", "", "the cluster's state is ok")


def coverage(facts: Facts) -> Iterator[Finding]:
    if facts.cluster is None:
        return
    ranges = [slots for member in facts.cluster.members for slots in member.slots]
    missing = _SLOTS - sum(last - first + 1 for first, last in ranges)
    moving = sum(member.moving for member in facts.cluster.members)
    if missing:
        yield problem(
            "slots",
            "",
            f"{missing} of {_SLOTS} slots belong to no node: locks in them cannot be taken",
            "assign them (redis-cli --cluster fix)",
        )
    else:
        yield ok("slots", "", f"all {_SLOTS} slots belong to a node")
    if moving:
        yield notice(
            "slots",
            "",
            "slots are being moved: their locks move with them, and cost one more round trip meanwhile",
            "if no operator is moving them, finish it: redis-cli --cluster fix",
        )


def shards(facts: Facts) -> Iterator[Finding]:
    if facts.cluster is None:
        return
    members = facts.cluster.members
    masters = [member for member in members if member.slots and "fail" not in member.flags]
    followed = {member.master for member in members if not member.flags & {"fail", "noaddr"}}
    for member in masters:
        if member.id not in followed:
            yield warning(
                "replicas",
                member.name,
                "this master has no replica: if it is lost, so are its slots",
                "add a replica (redis-cli --cluster add-node --cluster-slave)",
            )
    for member in members:
        if member.flags & {"fail", "fail?"}:
            yield problem(
                "cluster", member.name, "the cluster considers this node failed", "restart it, or CLUSTER FORGET it"
            )
    if len(masters) < 3:
        yield warning(
            "masters",
            "",
            f"{len(masters)} masters: when one is lost, the rest is no majority and does not fail over",
            "run three, on three hosts",
        )


def strangers(facts: Facts) -> Iterator[Finding]:
    for name in facts.cluster.strangers if facts.cluster else ():
        yield problem(
            "cluster",
            name,
            "is named in the URL and belongs to another cluster, where the same names are other locks",
            "remove it from the URL",
        )
