"""Examines a ZooKeeper ensemble.

Read ``facts.py`` first.

* ``gather.py``: gathers the facts; ``facts.py``: the facts, as data; ``checks.py``: from facts to findings, pure
* ``host_connection.py``: a session with one host; ``four_letter_commands.py``: ``srvr`` and ``conf``
"""

from __future__ import annotations

from holdfast._config.targets import Target
from holdfast.cli.doctor.finding import Finding
from holdfast.cli.doctor.zookeeper import checks
from holdfast.cli.doctor.zookeeper.facts import Ensemble
from holdfast.cli.doctor.zookeeper.gather import gather
from holdfast.errors import EngineRefused, EngineUnavailable


def examine(target: Target) -> list[Finding]:
    """Findings about the servers of ``target``. EngineUnavailable or EngineRefused if none of them answers."""
    ensemble = gather(target)
    _refuse_silence(ensemble)
    return checks.judge(ensemble)


def _refuse_silence(ensemble: Ensemble) -> None:
    if any(not server.failure or server.said or server.idle for server in ensemble.servers):
        return
    away = "; ".join(f"{server.name}: {server.failure}" for server in ensemble.servers)
    kind = EngineRefused if any(server.refused for server in ensemble.servers) else EngineUnavailable
    raise kind(f"no server could be examined: {away}")
