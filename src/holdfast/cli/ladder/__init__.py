"""``holdfast ladder``: nine ways to build a lock, each run against the fault that breaks it, on real servers.

Read ``verdicts.py`` first: the rungs, the faults, and what is promised for each pair. Then ``rungs/``, the locks
themselves, and ``faults.py``, the scripts of the experiments.

* ``show.py`` runs the selected cells; ``runner.py`` runs one cell; ``experiment.py`` is one run and its timeline
* ``servers.py`` starts and ends the lock servers
* ``worker.py`` is a client: a real process, one update of the ``register.py``; ``lines.py`` stops it at a named line
* ``processes.py`` starts and stops processes, through their parent, ``spawner.py``
* ``view.py``, ``matrix.py``, ``live.py``, ``report.py``, ``explain.py``: what is shown
* ``page.py`` makes the page of the documents from the JSON output, ``drawing.py`` its picture
"""

from __future__ import annotations

import argparse

from holdfast.cli.exit_codes import FAILED, OK, USAGE
from holdfast.cli.ladder.verdicts import FAULTS, RUNGS, as_promised
from holdfast.cli.output import write_error, write_result

_NAME = "holdfast ladder"


def configure(parser: argparse.ArgumentParser) -> None:
    rungs, faults = [rung.number for rung in RUNGS], [fault.name for fault in FAULTS]
    parser.add_argument("--rung", type=int, choices=rungs, metavar="N", help="only this rung, 1 to 9")
    parser.add_argument("--fault", choices=faults, metavar="NAME", help=f"only this one: {', '.join(faults)}")
    parser.add_argument("--runs", type=_positive, default=1, metavar="N", help="run every cell N times (default: 1)")
    parser.add_argument("--explain", action="store_true", help="with --rung: source, timeline, and what comes next")
    parser.add_argument("--json", action="store_true", help="print the result only, as one line of JSON")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """0 if every cell came out as promised; 1 if not, or if an experiment could not be carried out."""
    if arguments.explain and arguments.rung is None:
        write_error("--explain needs --rung N", command=_NAME)
        return USAGE
    # Not needed for "holdfast --help".
    from holdfast.cli.ladder.explain import explained
    from holdfast.cli.ladder.processes import LadderFailed
    from holdfast.cli.ladder.report import encode
    from holdfast.cli.ladder.show import show

    try:
        cells = show(arguments.rung, arguments.fault, arguments.runs, quiet=arguments.json)
    except LadderFailed as error:
        write_error(str(error), command=_NAME)
        return FAILED
    if arguments.json:
        write_result(encode(cells))
    elif arguments.explain:
        decisive = [cell for cell in cells if arguments.fault or cell.fault.name == (cell.rung.breaks_at or "freeze")]
        for paragraph in explained(decisive[0]):
            write_result("\n" + paragraph)
    return OK if as_promised(cells) else FAILED
