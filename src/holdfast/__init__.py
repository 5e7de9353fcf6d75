"""Distributed locks for Python that tell you when you lose them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from holdfast._version import __version__
from holdfast.client import Client, Lock, connect
from holdfast.engines.base import Guarantees, Holder, LockState
from holdfast.errors import (
    AcquireTimeout,
    EngineError,
    EngineRefused,
    EngineUnavailable,
    InvalidName,
    LockError,
    LockLost,
    NotHeld,
    OutcomeUnknown,
    QuorumLost,
    StaleToken,
    UsageError,
)
from holdfast.lease import Lease
from holdfast.settings import configure

if TYPE_CHECKING:
    from holdfast import aio as aio
    from holdfast import fencing as fencing

__all__ = [
    "AcquireTimeout",
    "Client",
    "EngineError",
    "EngineRefused",
    "EngineUnavailable",
    "Guarantees",
    "Holder",
    "InvalidName",
    "Lease",
    "Lock",
    "LockError",
    "LockLost",
    "LockState",
    "NotHeld",
    "OutcomeUnknown",
    "QuorumLost",
    "StaleToken",
    "UsageError",
    "__version__",
    "aio",
    "configure",
    "connect",
    "fencing",
]

_LAZY = frozenset({"aio", "fencing"})  # asyncio alone would double the time of ``import holdfast``


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return importlib.import_module(f"holdfast.{name}")
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
