"""``holdfast ls``: the locks that are held, one line each, printed as they are found."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Final

from holdfast.cli import connecting
from holdfast.cli.exit_codes import OK
from holdfast.cli.output import write_error, write_json, write_result

#: Columns on a terminal. Lines are written as locks are found, so the longest name is not known in advance; a longer
#: one moves the rest of its own line.
_WIDTHS: Final = (32, 36, 8, 10, 17, 7, 15)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prefix", metavar="PREFIX", nargs="?", default="", help="only names that start with this")
    connecting.add_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object on one line for each lock")


def run(arguments: argparse.Namespace) -> int:
    """0, also if no lock is held."""
    from holdfast.cli import lock_state

    any_held = False
    with connecting.connect(arguments) as client:
        engine = repr(client._engine)  # shown if nothing is found: it may be the wrong engine
        for state in client.locks(arguments.prefix):
            if arguments.json:
                write_json(lock_state.as_data(state))
            else:
                if not any_held:
                    write_result(_line(lock_state.headings()), styled=True)
                write_result(_line(lock_state.as_row(state, time.time())), styled=True)
            any_held = True
    if not any_held:
        prefix = f" with a name that starts with {arguments.prefix!r}" if arguments.prefix else ""
        write_error(f"no lock{prefix} is held on {engine}", command="holdfast ls")
    return OK


def _line(cells: Sequence[str]) -> str:
    """Columns of fixed widths on a terminal; elsewhere one tab between them, for cut(1) and awk(1)."""
    if not sys.stdout.isatty():
        return "\t".join(cells)
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()
