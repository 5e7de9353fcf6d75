"""Replicas: whether they follow their master, and what a failover to one of them may cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from holdfast.cli.doctor.facts import Facts, Node
from holdfast.cli.doctor.finding import Finding, notice, ok, problem, warning

#: Redis' own default of min-replicas-max-lag.
_LARGE_LAG: Final = 10
_FAR_BEHIND: Final = 1 << 20
_WHAT_REPLICAS_DOES: Final = (
    "connect with replicas=1: an acquire and every renewal then count only once a replica has acknowledged them"
)


def link_to_master(node: Node, facts: Facts) -> Iterator[Finding]:
    if node.role != "slave":
        return
    if node.info.get("master_link_status") != "up":
        down = node.info.get("master_link_down_since_seconds", "?")
        yield problem(
            "replication",
            node.name,
            f"it has lost its master (for {down} s): it has no newer locks",
            "restore the link; look at the logs of both",
        )
    else:
        yield ok("replication", node.name, "follows its master")


def replicas(node: Node, facts: Facts) -> Iterator[Finding]:
    if node.role != "master":
        return
    for replica in node.replicas:
        behind = f"replica {replica.name} is {replica.behind} bytes behind, last acknowledged {replica.lag} s ago"
        if replica.state != "online":
            yield warning(
                "replicas",
                node.name,
                f"replica {replica.name} is not online but {replica.state}",
                "wait if it is just being synchronised; else look at its log",
            )
        elif replica.lag >= _LARGE_LAG or replica.behind > _FAR_BEHIND:
            yield warning(
                "replicas",
                node.name,
                f"{behind}: promoted now, it would not have the newest locks",
                "find out what delays it: network, disk, or its own load",
            )
        else:
            yield ok("replicas", node.name, behind)


def acknowledgement(node: Node, facts: Facts) -> Iterator[Finding]:
    if node.role != "master" or node.part == "redlock":
        return
    online = sum(replica.state == "online" for replica in node.replicas)
    wanted = facts.options.replicas
    if wanted > online:
        yield problem(
            "acknowledgement",
            node.name,
            f"replicas={wanted} is asked for, and {online} are online: no lock can be taken",
            "bring replicas up, or ask for fewer",
        )
    elif wanted and wanted == online:
        yield notice(
            "acknowledgement",
            node.name,
            f"replicas={wanted} needs every replica: while one is away, no lock can be taken",
            "add a replica, so that one can be away",
        )
    elif wanted:
        yield ok(
            "acknowledgement", node.name, f"every grant and renewal is acknowledged by {wanted} of {online} replicas"
        )
    elif online:
        yield _unacknowledged(node)


def _unacknowledged(node: Node) -> Finding:
    if node.number("min-replicas-to-write"):
        lag = node.number("min-replicas-max-lag")
        return notice(
            "acknowledgement",
            node.name,
            f"a failover may forget the newest locks; min-replicas-to-write ends a master that is cut off in {lag} s",
            _WHAT_REPLICAS_DOES,
        )
    return warning(
        "acknowledgement",
        node.name,
        "a failover may forget the newest locks, and a master that is cut off goes on renewing for its holders "
        "while the new one grants the same locks again",
        f"{_WHAT_REPLICAS_DOES}; and set min-replicas-to-write 1, so that a master that is cut off stops by itself",
    )


def redlock_replicas(node: Node, facts: Facts) -> Iterator[Finding]:
    if facts.engine == "redlock" and node.role == "master" and node.replicas:
        yield warning(
            "replicas",
            node.name,
            "a node of a redlock has replicas: failed over to one, it votes for locks a second time",
            "let the nodes be masters without replicas; the other nodes are their spare",
        )
