"""Fences: they check fencing tokens.

A fencing token protects a resource only if the resource checks it. A fence does that: it refuses an older token, so
that a holder which was frozen past its lease cannot write when it wakes up.

* :class:`MemoryFence` for what one process keeps in memory;
* :class:`FileFence` for what the processes of one host share;
* :class:`SqlFence` for rows of PostgreSQL or SQLite, inside the user's own transaction (``sql/``);
* :class:`RedisFence`, :class:`AsyncRedisFence` for data in Redis (``redis/``);
* :class:`ObjectFence`, :class:`AsyncObjectFence` for objects in S3, GCS or Azure (``objects/``);
* :mod:`~holdfast.fencing.http`: the header, and middleware that holds a guard during a request;
* :func:`from_env`: the lease of the ``holdfast run`` that started this program.

Read ``rule.py`` first: the rule of all fences. Fences that need a driver are imported when they are first used.

* ``base.py``, ``guard.py``, ``turns.py``: guards of MemoryFence and FileFence, and their exclusion in this process
* ``memory.py``: MemoryFence; ``file.py``, ``file_gate.py``, ``record.py``, ``descriptors.py``, ``disk.py``: FileFence
* ``environment.py``: :func:`from_env`
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from holdfast.fencing.base import Fence
from holdfast.fencing.file import FileFence
from holdfast.fencing.guard import Guard
from holdfast.fencing.memory import MemoryFence

if TYPE_CHECKING:
    from holdfast.fencing import http as http
    from holdfast.fencing.environment import InheritedLease, from_env
    from holdfast.fencing.objects import AsyncObjectFence, ObjectFence
    from holdfast.fencing.redis import AsyncRedisFence, RedisFence
    from holdfast.fencing.sql import SqlFence

__all__ = [
    "AsyncObjectFence",
    "AsyncRedisFence",
    "Fence",
    "FileFence",
    "Guard",
    "InheritedLease",
    "MemoryFence",
    "ObjectFence",
    "RedisFence",
    "SqlFence",
    "from_env",
    "http",
]

#: The modules of names that are loaded when they are first used.
_HOME: Final = {
    "AsyncObjectFence": "objects",
    "AsyncRedisFence": "redis",
    "InheritedLease": "environment",
    "ObjectFence": "objects",
    "RedisFence": "redis",
    "SqlFence": "sql",
    "from_env": "environment",
}
_MODULES: Final = frozenset({"http"})


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
