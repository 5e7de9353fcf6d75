"""Which threads there are, apart from the one for users' callbacks: it ends by itself, a second after the last of them,
whichever test that was in."""

from __future__ import annotations

import threading
from typing import Final

CALLBACKS: Final = "holdfast-callbacks"


def threads() -> list[str]:
    """Their names."""
    return [thread.name for thread in threading.enumerate() if thread.name != CALLBACKS]


def new_since(before: set[threading.Thread]) -> set[threading.Thread]:
    """Those that were not there ``before``. (One that was may be on its way out, from an earlier test.)"""
    return {one for one in threading.enumerate() if one.name != CALLBACKS} - before
