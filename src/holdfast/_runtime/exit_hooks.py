"""Functions to be called at interpreter exit, after what is held has been released.

Engines register here, below the core; the core calls them at the end of its own exit handler. ``atexit`` alone does not
suffice: it calls handlers in reverse order of registration, so an engine's would run before the core releases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_hooks: Final[list[Callable[[], None]]] = []


def after_release_at_exit(hook: Callable[[], None]) -> None:
    """Have ``hook`` called at interpreter exit, after what is held has been released."""
    _hooks.append(hook)


def run_exit_hooks() -> None:
    """Call all hooks, in order of registration."""
    for hook in _hooks:
        hook()
