"""Which threads there are, apart from the one for users' callbacks: it ends by itself, a second after the last of them,
whichever test that was in."""

from __future__ import annotations

import threading


def threads() -> list[str]:
    """Their names."""
    return [thread.name for thread in threading.enumerate() if thread.name != "holdfast-callbacks"]
