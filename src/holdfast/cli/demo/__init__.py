"""``holdfast demo``: updates are lost without a lock and kept with one, and a late write is refused. Needs no server.

Read ``scenario.py`` first.

* ``scenario.py``: the two parts of the demo
* ``workers.py``: the worker processes, seen from the demo; ``worker.py``: their program
* ``counter.py``: the shared number, in a file
* ``results.py``: what happened, as data
* ``view.py``: chooses the output: ``live.py`` on a terminal, ``plain.py`` elsewhere
"""

from __future__ import annotations

import argparse

from holdfast.cli.exit_codes import FAILED, OK
from holdfast.cli.output import write_error, write_result


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the result only, as one line of JSON")


def run(arguments: argparse.Namespace) -> int:
    """0 if everything went as promised; 1 if not, or if a process of the demo failed."""
    # Not needed for "holdfast --help".
    from holdfast.cli.demo.scenario import run as run_demo
    from holdfast.cli.demo.view import choose
    from holdfast.cli.demo.workers import WorkerFailed

    try:
        outcome = run_demo(choose(quiet=arguments.json))
    except WorkerFailed as error:
        write_error(str(error), command="holdfast demo")
        return FAILED
    write_result(outcome.json())
    return OK if outcome.as_promised else FAILED
