"""Fences: the checking half of a fencing token.

A lock's token is worth what the resource does with it. A fence stands before the resource and refuses an older token,
so that a holder which was frozen past its lease cannot write when it wakes up.

* :class:`MemoryFence` for what one process keeps in memory;
* :class:`FileFence` for what the processes of one host share.
"""

from __future__ import annotations

from holdfast.fencing.base import Fence
from holdfast.fencing.file import FileFence
from holdfast.fencing.guard import Guard
from holdfast.fencing.memory import MemoryFence

__all__ = ["Fence", "FileFence", "Guard", "MemoryFence"]
