"""``holdfast demo``: see updates get lost without a lock, kept with one, and a late write refused. No server needed."""

from __future__ import annotations

import argparse

from holdfast.cli.exit_codes import FAILED, OK
from holdfast.cli.output import write_error, write_result


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the result only, as one line of JSON")


def run(arguments: argparse.Namespace) -> int:
    """0 if everything went as promised; 1 if not, or if a process of the demo failed."""
    # Not needed for "holdfast --help".
    from holdfast.cli.demo.scenario import play
    from holdfast.cli.demo.view import choose
    from holdfast.cli.demo.workers import WorkerFailed

    try:
        outcome = play(choose(quiet=arguments.json))
    except WorkerFailed as error:
        write_error(str(error), command="holdfast demo")
        return FAILED
    write_result(outcome.json())
    return OK if outcome.as_promised else FAILED
