"""The checks: pure functions from facts to findings. A new check is one function, and its name in one of these lists.

* ``server.py``: one server by itself; ``rights.py``: the user's rights; ``limits.py``: memory and connections
* ``durability.py``: restarts; ``replication.py``: replicas; ``clocks.py``: clocks
* ``sentinels.py``, ``clusters.py``, ``redlock.py``: several servers together; ``redisson.py``: names shared with Java
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from holdfast.cli.doctor.checks import (
    clocks,
    clusters,
    durability,
    limits,
    redisson,
    redlock,
    replication,
    rights,
    sentinels,
    server,
)
from holdfast.cli.doctor.facts import Facts, Node
from holdfast.cli.doctor.finding import Finding

#: About all servers together.
TOGETHER: Final[tuple[Callable[[Facts], Iterator[Finding]], ...]] = (
    sentinels.agreement,
    sentinels.quorum,
    sentinels.enough,
    clusters.state,
    clusters.coverage,
    clusters.shards,
    clusters.strangers,
    redlock.number,
    redlock.majority,
    redlock.same_server,
    clocks.between_nodes,
    redisson.watchdog_timeout,
)

#: About each server that answers.
EACH: Final[tuple[Callable[[Node, Facts], Iterator[Finding]], ...]] = (
    server.version,
    server.mode,
    server.role,
    server.writing,
    server.scripts,
    server.waking,
    rights.lacking,
    limits.eviction,
    limits.memory,
    durability.persistence,
    durability.failed_saves,
    durability.recent_restart,
    replication.link_to_master,
    replication.replicas,
    replication.acknowledgement,
    replication.redlock_replicas,
    limits.connections,
    limits.idle_timeout,
    clocks.against_this_host,
    server.withheld,
)


def judge(facts: Facts) -> list[Finding]:
    """All findings: first about all servers together, then server by server. An unreachable server has only one."""
    findings = [finding for check in TOGETHER for finding in check(facts)]
    for sentinel in facts.sentinels:
        findings += sentinels.reachable(sentinel)
    for node in facts.nodes:
        if node.failure:
            findings += server.reachable(node)
        else:
            findings += [finding for check in EACH for finding in check(node, facts)]
    return findings
