"""What happens to locks when a server restarts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from holdfast.cli.doctor.checks.clocks import spread
from holdfast.cli.doctor.facts import Facts, Node
from holdfast.cli.doctor.finding import Finding, notice, ok, problem, warning

_USE_AOF: Final = "set appendonly yes and appendfsync everysec (or always)"


def persistence(node: Node, facts: Facts) -> Iterator[Finding]:
    if "aof_enabled" not in node.info:
        return
    forgotten = _forgotten(node)
    if _is_durable(node):
        yield ok("persistence", node.name, "every lock is on disk before it is granted (appendfsync always)")
    elif facts.engine == "redlock":
        yield _restart_rule(node, facts)
    elif not forgotten:
        yield ok("persistence", node.name, "append-only file: a restart keeps locks, a power cut may free the newest")
    elif node.role == "slave":
        yield notice("persistence", node.name, f"{forgotten}, once it is the master", _USE_AOF)
    else:
        yield warning("persistence", node.name, f"{forgotten}, while its holder still relies on it", _USE_AOF)


def _forgotten(node: Node) -> str:
    """Which locks a restart frees; empty if none."""
    if node.info["aof_enabled"] == "1":
        by_kernel = node.config.get("appendfsync") == "no"
        return "appendfsync is no: a power cut frees every lock of the last half minute" if by_kernel else ""
    saves = node.config.get("save")
    if saves == "":
        return "nothing is persisted: a restart frees every lock"
    known = "there is no append-only file" if saves is None else "snapshots only"
    return f"{known}: a restart frees every lock that was taken since the last snapshot"


def _is_durable(node: Node) -> bool:
    return node.info.get("aof_enabled") == "1" and node.config.get("appendfsync") == "always"


def _restart_rule(node: Node, facts: Facts) -> Finding:
    # A node that has lost a lock must not vote for the same name while the first holder's lease may be valid.
    skew = spread(facts)
    delay = max(facts.options.ttl, skew.offset + skew.uncertainty if skew else 0.0)
    return notice(
        "persistence",
        node.name,
        "after a restart it may have forgotten locks, and would vote for them again",
        f"delay its restart by more than {delay:.0f} s (the longest ttl, or the clocks' difference if that is more; "
        "systemd: RestartSec=), or set appendonly yes and appendfsync always",
    )


def failed_saves(node: Node, facts: Facts) -> Iterator[Finding]:
    statuses = {"aof_last_write_status": "append-only file", "rdb_last_bgsave_status": "snapshot"}
    for name, what in statuses.items():
        if node.info.get(name, "ok") != "ok":
            yield problem(
                "saving",
                node.name,
                f"the last write of its {what} failed: it refuses writes, or will lose them",
                "make room on its disk, and look at the server's log",
            )


def recent_restart(node: Node, facts: Facts) -> Iterator[Finding]:
    uptime = node.number("uptime_in_seconds")
    if facts.engine == "redlock" and uptime is not None and uptime < facts.options.ttl and not _is_durable(node):
        yield warning(
            "restart",
            node.name,
            f"was started {uptime} s ago, less than one ttl: it may have forgotten locks that are still held",
            f"wait {facts.options.ttl - uptime:.0f} s more; if it restarts by itself, delay that (see persistence)",
        )
