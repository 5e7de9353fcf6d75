"""``holdfast completion SHELL``: print the completion for a shell.

``generate.py`` makes the files ``holdfast.bash``, ``holdfast.zsh`` and ``holdfast.fish`` from the parser, with shtab,
which only developers need. Run it after each change of the command line.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from holdfast.cli.exit_codes import OK
from holdfast.cli.output import write_json, write_result

SHELLS: Final = ("bash", "zsh", "fish")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=" or ".join(SHELLS))
    parser.add_argument("--json", action="store_true", help="print one line of JSON, with the text in it")


def run(arguments: argparse.Namespace) -> int:
    text = file_for(arguments.shell).read_text("utf-8")
    if arguments.json:
        write_json({"shell": arguments.shell, "completion": text})
    else:
        write_result(text.rstrip("\n"), styled=True)  # our own file: its tabs are meant
    return OK


def file_for(shell: str) -> Path:
    return Path(__file__).with_name(f"holdfast.{shell}")
