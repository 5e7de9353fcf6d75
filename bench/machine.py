"""The machine that was measured on, and the other load on it. Nothing that identifies it: no host name, no path."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, NamedTuple

import holdfast
from bench import peers
from bench.peers import jvm
from tests.servers.redis import BINARY

_TICKS: Final = os.sysconf("SC_CLK_TCK")
#: If other processes use more than this share of a core, figures should not be quoted.
_QUIET: Final = 0.1


def describe() -> dict[str, str]:
    """The machine and the versions, as text."""
    return {
        "cpu": _cpu_model(),
        "cores": str(os.cpu_count()),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "redis-server": _redis_version(),
        "sqlite": sqlite3.sqlite_version,
        "holdfast": holdfast.__version__,
        **{package: _version(package) for package in ("hiredis", *peers.DISTRIBUTIONS)},
        **({} if shutil.which("java") is None else jvm.versions()),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _redis_version() -> str:
    if BINARY is None:
        return "not installed"
    words = subprocess.run([BINARY, "--version"], capture_output=True, text=True, check=True).stdout.split()
    return next((word[2:] for word in words if word.startswith("v=")), "unknown")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


class Noise(NamedTuple):
    """The other load on the machine during a measurement, in cores."""

    others: float
    stolen: float

    @property
    def warning(self) -> str:
        """A warning about figures measured under this load; empty if the machine was quiet."""
        if self.others + self.stolen <= _QUIET:
            return ""
        return "The machine was busy with other work: ratios are unreliable, absolute figures are not usable."

    def __str__(self) -> str:
        return f"others used {self.others:.2f} cores, the hypervisor took {self.stolen:.2f}"


class NoiseMeter:
    """Measures the noise since it was created. Child processes count as our own load once they have ended."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._machine = _busy_and_stolen()
        self._own = sum(os.times()[:4])

    def noise(self) -> Noise:
        elapsed = time.monotonic() - self._start
        busy, stolen = (after - before for after, before in zip(_busy_and_stolen(), self._machine, strict=True))
        own = sum(os.times()[:4]) - self._own
        return Noise(max(0.0, busy - own) / elapsed, stolen / elapsed)


def _busy_and_stolen() -> tuple[float, float]:
    line = Path("/proc/stat").read_text("utf-8").splitlines()[0]
    user, nice, system, _, _, interrupts, soft_interrupts, stolen = (int(word) / _TICKS for word in line.split()[1:9])
    return user + nice + system + interrupts + soft_interrupts, stolen
