"""``python -m bench.check``: count, compare with what was recorded, and fail if a count has grown by more than 10 %."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.check.calibration import cpu_in_loops
from bench.check.comparison import TOLERANCE, Difference, compare
from bench.check.counting import executed
from bench.check.operations import Operation, operations
from bench.server_cost import ServerMeter

_RECORDED: Final = Path(__file__).parent / "recorded.json"
_COUNTED: Final = 30
_SERVED: Final = 200
_LOG_WIDTH: Final = 130


def main() -> int:
    """0 if nothing has grown."""
    options = _options()
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _LOG_WIDTH
    started = time.monotonic()
    counted: dict[str, dict[str, float]] = {}
    shown: dict[str, tuple[str, str]] = {}
    with operations() as all_of_them:
        for operation in all_of_them:
            counted[operation.name], shown[operation.name] = _measure(operation)
    everything = json.loads(_RECORDED.read_text("utf-8"))
    python = _python()
    differences = compare(everything.get(python, {}), counted)
    _show(differences, shown, console)
    console.print(f"{python}, {time.monotonic() - started:.0f} s.", style="dim")
    if options.record:
        everything[python] = counted
        _RECORDED.write_text(json.dumps(everything, indent=1, sort_keys=True) + "\n", "utf-8")
        console.print(f"Recorded for {python}.")
        return 0
    if python not in everything:
        console.print(f"Nothing is recorded for {python}, so nothing was compared.", style="yellow")
        return 0
    return _verdict(differences, console)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.check", description=__doc__)
    parser.add_argument("--record", action="store_true", help="store what was counted as the figures to compare with")
    return parser.parse_args()


def _python() -> str:
    """Instructions differ between minor versions, hardly within one."""
    return f"{platform.python_implementation().lower()}-{'.'.join(platform.python_version_tuple()[:2])}"


def _measure(operation: Operation) -> tuple[dict[str, float], tuple[str, str]]:
    """The counts that are compared; CPU time and the server's time in scripts, which are only shown."""
    for _ in range(10):
        operation.run()  # connections, scripts, caches, specialized instructions
    run = executed(operation.run, _COUNTED)
    counts: dict[str, float] = {"instructions": run.instructions, "calls": run.calls, "C calls": run.c_calls}
    in_scripts = ""
    if operation.probe is not None:
        meter = ServerMeter(operation.probe)
        for _ in range(_SERVED):
            operation.run()
        spent = meter.spent()
        counts["requests"] = round(spent.scripts / _SERVED, 1)
        counts["commands"] = round(spent.commands / _SERVED, 1)
        in_scripts = f"{spent.script_seconds / _SERVED * 1e6:.0f} µs"
    return counts, (f"{cpu_in_loops(operation.run, _SERVED):.1f}", in_scripts)


def _show(differences: list[Difference], shown: dict[str, tuple[str, str]], console: Console) -> None:
    names = list(dict.fromkeys(one.count for one in differences))
    table = Table(box=None, header_style="dim", pad_edge=False)
    for place, title in enumerate(("", *names, "CPU, loops", "in scripts")):
        table.add_column(title, justify="right" if place else "left")
    found: dict[tuple[str, str], Any] = {(one.operation, one.count): one for one in differences}
    for operation, extra in shown.items():
        cells = [_cell(found.get((operation, name))) for name in names]
        table.add_row(operation, *cells, *extra)
    console.print(table)


def _cell(one: Difference | None) -> str:
    if one is None or one.counted is None:
        return ""
    style = "red" if one.grown and one.recorded is not None else "green" if one.shrunk else ""
    beside = "" if one.recorded in (None, one.counted) else f" (was {one.recorded:g})"
    text = f"{one.counted:g}{beside}"
    return f"[{style}]{text}[/]" if style else text


def _verdict(differences: list[Difference], console: Console) -> int:
    grown = [one for one in differences if one.grown]
    if any(one.shrunk for one in differences):
        console.print("Some counts have shrunk. Record them, so that they stay: make bench-check ARGS=--record")
    if not grown:
        console.print(f"No count has grown by more than {TOLERANCE:.0%}.", style="green")
        return 0
    for one in grown:
        console.print(str(one), style="red")
    console.print("If that is intended, record it and say why in the commit: make bench-check ARGS=--record")
    return 1


if __name__ == "__main__":
    sys.exit(main())
