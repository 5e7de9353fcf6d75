"""Whether stdout is a terminal for live output."""

from __future__ import annotations

import importlib.util
import os
import sys

from holdfast._version import DISTRIBUTION
from holdfast.cli.output import write_error


def takes_a_picture(command: str) -> bool:
    """Whether stdout is a terminal with cursor control and rich is installed. A missing rich is reported on stderr."""
    if not sys.stdout.isatty() or os.environ.get("TERM", "") in ("", "dumb"):
        return False
    if importlib.util.find_spec("rich") is None:
        write_error(f"for the live picture: pip install '{DISTRIBUTION}[cli]'", command=command)
        return False
    return True
