"""``python -m holdfast.cli.completion.generate``: write the completion files beside this file. Needs shtab."""

from __future__ import annotations

import importlib.metadata

import shtab

from holdfast.cli.command import commands
from holdfast.cli.completion import SHELLS, file_for
from holdfast.cli.parser import make_parser


def generated(shell: str) -> str:
    """The completion for ``shell``, of the parser as it is now."""
    rows = commands()
    text: str = shtab.complete(make_parser(rows, rows), shell)
    lines = [line.rstrip() for line in text.rstrip().splitlines()]
    return "\n".join([*lines, "", made_by(), ""])


def made_by() -> str:
    """The last line of each file: another version of shtab may write something else."""
    return f"# Made from the parser of holdfast by shtab {importlib.metadata.version('shtab')}"


if __name__ == "__main__":
    for each in SHELLS:
        file_for(each).write_text(generated(each), "utf-8")
