"""What Redis servers have spent: commands (those inside scripts included), CPU time, and time inside scripts."""

from __future__ import annotations

from typing import Any, NamedTuple


class Spent(NamedTuple):
    commands: int
    cpu: float  #: seconds
    scripts: int
    script_seconds: float

    def __sub__(self, earlier: Spent) -> Spent:
        return Spent(
            self.commands - earlier.commands,
            self.cpu - earlier.cpu,
            self.scripts - earlier.scripts,
            self.script_seconds - earlier.script_seconds,
        )


class ServerMeter:
    """Counts since ``start``, or since it was created. The commands of the meter itself are left out."""

    def __init__(self, *probes: Any) -> None:
        self._probes = probes
        self.start()

    def start(self) -> None:
        self._before = self._total()

    def spent(self) -> Spent:
        return self._total() - self._before

    def _total(self) -> Spent:
        of_each = [_of(probe) for probe in self._probes]
        return Spent(
            sum(spent.commands for spent in of_each),
            sum(spent.cpu for spent in of_each),
            sum(spent.scripts for spent in of_each),
            sum(spent.script_seconds for spent in of_each),
        )


def _of(probe: Any) -> Spent:
    stats, cpu = probe.info("commandstats"), probe.info("cpu")
    scripts = stats.get("cmdstat_evalsha", {"calls": 0, "usec": 0})
    return Spent(
        sum(values["calls"] for name, values in stats.items() if name != "cmdstat_info"),
        cpu["used_cpu_user"] + cpu["used_cpu_sys"],
        scripts["calls"],
        scripts["usec"] / 1e6,
    )
