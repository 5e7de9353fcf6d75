"""What kind of output stdout is for."""

from __future__ import annotations

import importlib.util
import os
import sys

from holdfast._version import DISTRIBUTION
from holdfast.cli.output import write_error


def takes_a_picture(command: str) -> bool:
    """Stdout is a terminal that can be drawn on, and rich is there. If only rich is missing, stderr reports it."""
    if not sys.stdout.isatty() or os.environ.get("TERM", "") in ("", "dumb"):
        return False
    if importlib.util.find_spec("rich") is None:
        write_error(f"for the live picture: pip install '{DISTRIBUTION}[cli]'", command=command)
        return False
    return True
