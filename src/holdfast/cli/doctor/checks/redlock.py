"""Redlock: whether a majority of different servers can be reached."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.cli.doctor.facts import Facts
from holdfast.cli.doctor.finding import Finding, ok, problem, warning


def number(facts: Facts) -> Iterator[Finding]:
    if facts.engine != "redlock":
        return
    count = len(facts.nodes)
    spare = (count - 1) // 2
    if count < 3:
        yield warning(
            "nodes",
            "",
            f"{count} nodes: not one of them may fail",
            "use three or five nodes, or redis:// for a single one",
        )
    elif count % 2 == 0:
        yield warning(
            "nodes",
            "",
            f"{count} nodes: only {spare} may fail, as with {count - 1} nodes",
            "use an odd number",
        )
    else:
        yield ok("nodes", "", f"{count} nodes, of which {spare} may fail")


def majority(facts: Facts) -> Iterator[Finding]:
    needed = len(facts.nodes) // 2 + 1
    if facts.engine == "redlock" and len(facts.alive) < needed:
        yield problem(
            "majority",
            "",
            f"{len(facts.alive)} of {len(facts.nodes)} nodes answer, and {needed} are needed: "
            "no lock can be taken (QuorumLost)",
            "bring nodes back",
        )


def same_server(facts: Facts) -> Iterator[Finding]:
    if facts.engine != "redlock":
        return
    names: dict[str, list[str]] = {}
    for node in facts.alive:
        if run_id := node.info.get("run_id"):
            names.setdefault(run_id, []).append(node.name)
    for same in names.values():
        if len(same) > 1:
            yield problem(
                "nodes",
                "",
                f"{' and '.join(same)} are one and the same server: its vote counts {len(same)} times",
                "name each server once",
            )
