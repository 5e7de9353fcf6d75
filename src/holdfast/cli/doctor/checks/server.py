"""One server by itself: whether it is the right one, and can serve locks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from holdfast.cli.doctor.facts import Facts, Node, Purpose
from holdfast.cli.doctor.finding import Finding, notice, ok, problem, warning

_OLDEST: Final = (6, 2)
#: Of request_timeout.
_SLOW: Final = 0.25
_WRITE_REMEDIES: Final = {
    "LOADING": "wait until it has loaded its data",
    "MASTERDOWN": "restore the link to its master, or connect to the master",
    "MISCONF": "make its disk writable again: it cannot save, and refuses writes until it can",
    "NOREPLICAS": "bring its replicas back, or lower min-replicas-to-write",
    "OOM": "raise maxmemory, or give locks a server of their own",
    "READONLY": "connect to its master; where Sentinel watches over it, use redis+sentinel://",
}


def reachable(node: Node) -> Iterator[Finding]:
    remedy = "check address, password and certificate" if node.refused else "start it, or let this host reach it"
    yield problem("reachable", node.name, f"could not be examined: {node.failure}", remedy)


def version(node: Node, facts: Facts) -> Iterator[Finding]:
    text = node.info.get("redis_version", "")
    numbers = re.match(r"(\d+)\.(\d+)", text)
    if numbers is None:
        return
    product = f"Valkey {node.info['valkey_version']}" if "valkey_version" in node.info else f"Redis {text}"
    if (int(numbers[1]), int(numbers[2])) < _OLDEST:
        yield problem(
            "version", node.name, f"{product} is older than any that holdfast is tested with", "use 6.2 or later"
        )
    else:
        yield ok("version", node.name, product)


def mode(node: Node, facts: Facts) -> Iterator[Finding]:
    clustered = node.info.get("cluster_enabled") == "1"
    if clustered and facts.engine != "cluster":
        yield problem(
            "mode",
            node.name,
            "is a node of a Redis Cluster: most names are refused here (MOVED)",
            "connect with redis+cluster://",
        )
    elif node.info and not clustered and facts.engine == "cluster":
        yield problem("mode", node.name, "is no node of a cluster", "connect with redis://, or enable its cluster mode")


def role(node: Node, facts: Facts) -> Iterator[Finding]:
    if not node.role:
        return
    if node.role == "slave" and node.part in ("server", "redlock"):
        master = f"{node.info.get('master_host', '?')}:{node.info.get('master_port', '?')}"
        yield problem(
            "role",
            node.name,
            f"is a replica of {master}: it grants no lock (READONLY)",
            "connect to the master; where Sentinel watches over it, use redis+sentinel://",
        )
    elif node.role == "slave" and node.part == "master":
        yield problem(
            "role",
            node.name,
            "should be the master, but reports that it is a replica",
            "wait if a failover is under way; else look at the sentinels or the cluster",
        )
    elif node.role == "master" and node.part == "replica":
        yield problem(
            "role",
            node.name,
            "should be a replica, but reports that it is a master: it may grant locks twice",
            "wait if a failover is under way; else make it a replica (REPLICAOF)",
        )
    else:
        yield ok("role", node.name, "replica" if node.role == "slave" else "master")


def writing(node: Node, facts: Facts) -> Iterator[Finding]:
    if node.write_error:
        remedy = _WRITE_REMEDIES.get(node.write_error.partition(" ")[0], "see the server's log")
        yield problem("writing", node.name, f"no lock can be taken: {node.write_error}", remedy)


def scripts(node: Node, facts: Facts) -> Iterator[Finding]:
    if node.script_seconds is None:
        yield problem(
            "scripts",
            node.name,
            f"scripts do not run, and every operation is one: {node.script_error}",
            "allow EVAL and EVALSHA",
        )
        return
    took = f"one script takes {node.script_seconds * 1000:.1f} ms there and back"
    limit = facts.options.request_timeout
    if node.script_seconds > _SLOW * limit:
        yield warning(
            "scripts",
            node.name,
            f"{took}, which is near to request_timeout ({limit:g} s)",
            "raise request_timeout (and ttl to three times that at least), or use a server that is nearer",
        )
    else:
        yield ok("scripts", node.name, took)


def waking(node: Node, facts: Facts) -> Iterator[Finding]:
    if node.way == "tracking":
        yield ok(
            "waking", node.name, "RESP3 and client tracking work: waiters are woken, and losses reported, by a push"
        )
    elif node.way == "channel" and not any(lack.purpose is Purpose.PUSHES for lack in node.lacks):
        yield notice(
            "waking",
            node.name,
            "client tracking pushes nothing: waiters are woken by pub/sub, and a loss is noticed at the next renewal",
            "if there is a proxy in between, let it pass pushes of RESP3",
        )
    elif node.way == "polling":
        yield warning(
            "waking",
            node.name,
            "neither client tracking nor pub/sub works: each waiting process polls some 30 times a second",
            "allow CLIENT TRACKING and CLIENT CACHING, or SUBSCRIBE to the channels redisson_lock__channel:*",
        )


def withheld(node: Node, facts: Facts) -> Iterator[Finding]:
    for question, reason in node.withheld.items():
        yield notice(
            "withheld",
            node.name,
            f"{question} was refused, so its facts could not be examined: {reason}",
            f"allow {question}, or run the doctor as an operator",
        )
