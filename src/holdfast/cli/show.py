"""``holdfast show NAME``: everything known about one lock."""

from __future__ import annotations

import argparse
import time

from holdfast.cli import connecting
from holdfast.cli.exit_codes import FAILED, OK
from holdfast.cli.output import write_json, write_result


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the lock's name, without the namespace")
    connecting.add_options(parser)
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--exit-code", action="store_true", help="exit with 1 if the lock is free")


def run(arguments: argparse.Namespace) -> int:
    """0, also if the lock is free; with ``--exit-code`` 1 if it is."""
    from holdfast.cli import lock_state

    with connecting.connect(arguments) as client:
        state = client.inspect(arguments.name)
    if arguments.json:
        write_json(lock_state.as_data(state))
    else:
        write_result("\n".join(lock_state.as_lines(state, time.time())))
    return FAILED if arguments.exit_code and not state.holders else OK
