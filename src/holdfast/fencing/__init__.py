"""Fences: the checking half of a fencing token.

A lock's token is worth what the resource does with it. A fence stands before the resource and refuses an older token,
so that a holder which was frozen past its lease cannot write when it wakes up.

* :class:`MemoryFence` for what one process keeps in memory;
* :class:`FileFence` for what the processes of one host share;
* :class:`SqlFence` for rows of PostgreSQL or SQLite, inside the user's own transaction.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from holdfast.fencing.base import Fence
from holdfast.fencing.file import FileFence
from holdfast.fencing.guard import Guard
from holdfast.fencing.memory import MemoryFence

if TYPE_CHECKING:
    from holdfast.fencing.sql import SqlFence

__all__ = ["Fence", "FileFence", "Guard", "MemoryFence", "SqlFence"]

# Loaded when they are first used; none of them imports its driver before it is needed.
_LAZY: Final = {
    "SqlFence": "holdfast.fencing.sql",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'holdfast.fencing' has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value
