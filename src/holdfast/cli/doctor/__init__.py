"""``holdfast doctor``: look at the servers that locks rely on, and say what could cost you one, with the remedy."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from holdfast._version import DISTRIBUTION
from holdfast.cli.command import USAGE
from holdfast.cli.output import write_error, write_result
from holdfast.errors import EngineRefused, EngineUnavailable, UsageError

if TYPE_CHECKING:
    from holdfast.cli.doctor.facts import Facts
    from holdfast.cli.doctor.finding import Finding
    from holdfast.options import Target

SUMMARY = "examine the servers behind a URL: what could cost you a lock (Redis, ZooKeeper), with the remedies"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", nargs="?", help="as for connect(); default: the configured one")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.epilog = (
        "Exit code: 0 all is well, or there are notices only; 3 a warning; 4 a problem; "
        "1 nothing could be examined; 2 wrong usage."
    )


def run(arguments: argparse.Namespace) -> int:
    """The worst level as exit code; EngineUnavailable or EngineRefused (1) if no server could be examined at all."""
    # Not needed for "holdfast --help".
    from holdfast.cli.doctor import render
    from holdfast.cli.doctor.finding import EXIT_CODES, worst

    try:
        target, shown = _target(arguments.url)
        findings = _findings(target)
    except UsageError as error:
        write_error(str(error), command="holdfast doctor")
        return USAGE
    write_result(render.as_json(shown, findings) if arguments.json else render.as_text(shown, findings))
    return EXIT_CODES[worst(findings)]


def _target(url: str | None) -> tuple[Target, str]:
    """What to examine, and how it is called where everybody may read it."""
    from holdfast._core.urls import redact
    from holdfast.options import parse_target
    from holdfast.settings import resolve_default

    if url is not None:
        return parse_target(url, {}), redact(url)
    default = resolve_default()
    shown = redact(default.url) if isinstance(default.url, str) else "sqlite:" if default.url is None else "…"
    return parse_target(default.url, default.keywords), shown


def _findings(target: Target) -> list[Finding]:
    if target.engine in ("memory", "sqlite"):
        from holdfast.cli.doctor import local

        return local.examine(target)
    if target.engine == "zookeeper":
        try:
            from holdfast.cli.doctor import zookeeper
        except ImportError as missing:
            raise UsageError(f"the doctor needs the driver: pip install '{DISTRIBUTION}[zookeeper]'") from missing
        return zookeeper.examine(target)
    try:
        from holdfast.cli.doctor import checks, topology
    except ImportError as missing:
        raise UsageError(f"the doctor needs the driver: pip install '{DISTRIBUTION}[redis]'") from missing
    facts = topology.gather(target)
    _refuse_silence(facts)
    return checks.judge(facts)


def _refuse_silence(facts: Facts) -> None:
    """With nobody to examine there is nothing to find: say why, as every other command would."""
    from holdfast.cli.doctor.finding import printable

    if facts.alive or facts.cluster or not all(sentinel.failure for sentinel in facts.sentinels):
        return
    away = [sentinel.failure for sentinel in facts.sentinels] + [node.failure for node in facts.nodes]
    kind = EngineRefused if any(node.refused for node in facts.nodes) else EngineUnavailable
    raise kind(printable(f"no server could be examined: {'; '.join(away)}"))
