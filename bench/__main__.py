"""``python -m bench``: ask the questions, show the answers, and store them with ``--write``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from rich.console import Console

from bench import bars, curves, progress, questions, readme, report
from bench.harness import Scale
from bench.machine import Noise, NoiseMeter, describe
from bench.outcome import Outcome, ask

_HERE: Final = Path(__file__).parent
_README: Final = _HERE.parent / "README.md"
_LOG_WIDTH: Final = 160


def main() -> int:
    """0 if every question was answered, whether or not its targets were met."""
    options = _options()
    console = Console(stderr=options.json, highlight=False)
    if not console.is_terminal:
        console.width = _LOG_WIDTH
    machine, meter = describe(), NoiseMeter()
    console.print(" · ".join(f"{name} {value}" for name, value in machine.items()), style="dim")
    outcomes: list[Outcome] = []
    names = options.names or questions.NAMES
    for number, name in enumerate(names, 1):
        with progress.asking(questions.load(name).TITLE, number, len(names), console):
            outcomes.append(ask(name, Scale(options.quick)))
        report.show(outcomes[-1], console)
    report.close(outcomes, console)
    noise = meter.noise()
    _warn(noise, options.quick, console)
    facts = machine | {"noise": str(noise)}
    if options.json:
        print(json.dumps({"machine": facts, "questions": [outcome.as_data() for outcome in outcomes]}, indent=1))
    if options.write:
        _write(facts, outcomes, noise)
    return int(any(outcome.answer is None for outcome in outcomes))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure holdfast beside its peers and the floor. Best on an otherwise idle machine.",
        epilog="questions: " + "; ".join(f"{name} ({title})" for name, title in questions.titles().items()),
    )
    parser.add_argument("names", nargs="*", metavar="name", help="which questions to ask (default: all)")
    parser.add_argument("--quick", action="store_true", help="only check that it works; the figures mean little")
    parser.add_argument("--json", action="store_true", help="everything as JSON on standard output")
    parser.add_argument(
        "--write",
        action="store_true",
        help="store the results beside this file, and the figures of the README",
    )
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in questions.NAMES]:
        parser.error(f"no such question: {', '.join(unknown)}; known: {', '.join(questions.NAMES)}")
    if options.write and (options.quick or options.names):
        parser.error("--write stores a full run: without --quick, without names")
    return options


def _warn(noise: Noise, quick: bool, console: Console) -> None:
    console.print(f"During the run {noise}.", style="dim")
    if noise.warning:
        console.print(noise.warning, style="yellow")
    if quick:
        console.print("A quick run: too few rounds to quote.", style="yellow")


def _write(facts: dict[str, str], outcomes: list[Outcome], noise: Noise) -> None:
    data = {"machine": facts, "questions": [outcome.as_data() for outcome in outcomes]}
    (_HERE / "results.json").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", "utf-8")
    (_HERE / "RESULTS.md").write_text(report.markdown(facts, outcomes, noise.warning), "utf-8")
    (_HERE / "results.svg").write_text(bars.draw(outcomes), "utf-8")
    (_HERE / "curves.svg").write_text(curves.draw(outcomes), "utf-8")
    written = readme.section(outcomes, noise.warning)
    _README.write_text(readme.replaced(_README.read_text("utf-8"), written), "utf-8")


if __name__ == "__main__":
    sys.exit(main())
