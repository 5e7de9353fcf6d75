"""``holdfast doctor``: examines the servers behind a URL, and reports what could cost a lock, with the remedy.

Read ``facts.py`` first: everything that is known about the servers. ``topology.py`` gathers the facts, ``checks/``
turns them into findings, ``render.py`` prints those.

* ``topology.py``: from a URL to servers; ``clusters.py``, ``sentinels.py``: the servers of a cluster or a Sentinel set
* ``examine.py``: the facts about one Redis server; ``rights.py``: the rights that its user lacks
* ``connection.py``: a connection for questions; ``concurrently.py``: asks several servers at the same time;
  ``servers.py``: names of servers
* ``finding.py``: findings, levels and exit codes; ``checks/``: from facts to findings, pure
* ``local.py``, ``lock_file.py``: the engines without a server; ``zookeeper/``: ZooKeeper
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from holdfast._version import DISTRIBUTION
from holdfast.cli import connecting
from holdfast.cli.exit_codes import SettingsError
from holdfast.cli.output import write_json, write_result
from holdfast.errors import EngineRefused, EngineUnavailable, UsageError

if TYPE_CHECKING:
    from holdfast._config.targets import Target
    from holdfast.cli.doctor.facts import Facts
    from holdfast.cli.doctor.finding import Finding


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="URL", nargs="?", help="the same as --url URL")
    connecting.add_options(parser)
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.epilog = (
        "Exit code: 0 all is well, or there are notices only; 3 a warning; 4 a problem; "
        "69 or 77 nothing could be examined: no server answered, or they refused; 64 wrong usage; 78 wrong settings."
    )


def run(arguments: argparse.Namespace) -> int:
    """The worst level as exit code; EngineUnavailable or EngineRefused if no server could be examined at all."""
    # Not needed for "holdfast --help".
    from holdfast.cli.doctor import render
    from holdfast.cli.doctor.finding import EXIT_CODES, worst

    target, shown = _target(arguments)
    try:
        findings = _findings(target)
    except UsageError as error:  # a driver, or a module of Python, is not installed
        raise SettingsError(str(error)) from error
    if arguments.json:
        write_json(render.as_data(shown, findings))
    else:
        write_result(render.as_text(shown, findings), styled=True)  # findings are escaped already; keep the colors
    return EXIT_CODES[worst(findings)]


def _target(arguments: argparse.Namespace) -> tuple[Target, str]:
    """What to examine, and its name without secrets."""
    from holdfast._config.targets import redact

    if arguments.target is not None:
        if arguments.url is not None:
            raise UsageError("the URL is given twice: as an argument and as --url; remove one")
        arguments.url = arguments.target
    target, default = connecting.find_target(arguments)
    url = arguments.url if default is None else default.url
    shown = redact(url) if isinstance(url, str) else "sqlite:" if url is None else "…"
    return target, shown


#: The engines that speak to Redis servers.
_REDIS: Final = frozenset({"redis", "sentinel", "cluster", "redlock"})


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
    if target.engine not in _REDIS:
        raise UsageError(f"the doctor has no checks for {target.engine}://")
    try:
        from holdfast.cli.doctor import checks, topology
    except ImportError as missing:
        raise UsageError(f"the doctor needs the driver: pip install '{DISTRIBUTION}[redis]'") from missing
    facts = topology.gather(target)
    _refuse_silence(facts)
    return checks.judge(facts)


def _refuse_silence(facts: Facts) -> None:
    """Raise if no server could be examined, as every other command does."""
    if facts.alive or facts.cluster or not all(sentinel.failure for sentinel in facts.sentinels):
        return
    away = [sentinel.failure for sentinel in facts.sentinels] + [node.failure for node in facts.nodes]
    kind = EngineRefused if any(node.refused for node in facts.nodes) else EngineUnavailable
    raise kind(f"no server could be examined: {'; '.join(away)}")
