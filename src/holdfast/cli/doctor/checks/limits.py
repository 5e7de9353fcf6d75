"""Limits of a server: memory, connections, idle timeout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from holdfast.cli.doctor.facts import Facts, Node
from holdfast.cli.doctor.finding import Finding, notice, ok, problem, warning

#: Share of maxmemory or maxclients that is in use.
_NEARLY_FULL: Final = 0.9


def eviction(node: Node, facts: Facts) -> Iterator[Finding]:
    policy, limit = node.info.get("maxmemory_policy"), node.number("maxmemory")
    if policy is None or limit is None:
        return
    evicted = node.number("evicted_keys")
    already = f" (it has evicted {evicted} keys so far)" if evicted else ""
    remedy = "set maxmemory-policy noeviction, or give locks a server of their own"
    if policy == "noeviction":
        yield ok("eviction", node.name, "maxmemory-policy is noeviction: no lock is dropped when memory is full")
    elif limit:
        yield problem(
            "eviction",
            node.name,
            f"maxmemory-policy is {policy}: a full server drops locks while they are held{already}",
            remedy,
        )
    else:
        yield notice(
            "eviction",
            node.name,
            f"maxmemory-policy is {policy}, without effect only as long as maxmemory is not set",
            remedy,
        )


def memory(node: Node, facts: Facts) -> Iterator[Finding]:
    used, limit = node.number("used_memory"), node.number("maxmemory")
    if used is not None and limit and used > _NEARLY_FULL * limit:
        yield warning(
            "memory",
            node.name,
            f"{used * 100 // limit} % of maxmemory are in use: when it is full, no lock can be taken or it evicts some",
            "raise maxmemory, or give locks a server of their own",
        )


def connections(node: Node, facts: Facts) -> Iterator[Finding]:
    used, limit = node.number("connected_clients"), node.number("maxclients")
    if used is None or not limit:
        return
    if used > _NEARLY_FULL * limit:
        yield warning(
            "connections",
            node.name,
            f"{used} of at most {limit} clients are connected: soon no other client can connect",
            "raise maxclients, or find out which clients have so many connections (CLIENT LIST)",
        )
    else:
        yield ok("connections", node.name, f"{used} of at most {limit} clients are connected")


def idle_timeout(node: Node, facts: Facts) -> Iterator[Finding]:
    seconds = node.number("timeout")
    if not seconds:
        return
    sentence = f"idle clients are disconnected after {seconds} s (timeout)"
    if seconds <= facts.options.ttl / 3:
        yield warning(
            "idle",
            node.name,
            f"{sentence}, sooner than a lease is renewed: losses are then reported late",
            f"set timeout 0, or more than {facts.options.ttl / 3:g}",
        )
    else:
        yield notice("idle", node.name, f"{sentence}; holdfast connects again, at the cost of a round trip")
