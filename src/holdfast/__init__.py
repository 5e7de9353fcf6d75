"""Distributed locks for Python that tell you when you lose them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from holdfast._version import __version__

if TYPE_CHECKING:
    from holdfast import aio as aio
    from holdfast import fencing as fencing
    from holdfast import observer as observer
    from holdfast._config.connect_options import (
        ClusterOptions,
        CommonOptions,
        ConnectOptions,
        MemoryOptions,
        RedisOptions,
        SentinelOptions,
        SqliteOptions,
        ZooKeeperOptions,
    )
    from holdfast.client import Client, Lock, connect
    from holdfast.current import current_lease
    from holdfast.decorator import locked
    from holdfast.engines.base import Guarantees, Holder, LockState, Waiter
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
    from holdfast.options import Duration
    from holdfast.settings import configure

__all__ = [
    "AcquireTimeout",
    "Client",
    "ClusterOptions",
    "CommonOptions",
    "ConnectOptions",
    "Duration",
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
    "MemoryOptions",
    "NotHeld",
    "OutcomeUnknown",
    "QuorumLost",
    "RedisOptions",
    "SentinelOptions",
    "SqliteOptions",
    "StaleToken",
    "UsageError",
    "Waiter",
    "ZooKeeperOptions",
    "__version__",
    "aio",
    "configure",
    "connect",
    "current_lease",
    "fencing",
    "locked",
    "observer",
]

# Everything is loaded when it is first used: a program that imports holdfast but does not lock this time pays nothing.
_HOMES = {
    "_config.connect_options": (
        "ClusterOptions",
        "CommonOptions",
        "ConnectOptions",
        "MemoryOptions",
        "RedisOptions",
        "SentinelOptions",
        "SqliteOptions",
        "ZooKeeperOptions",
    ),
    "client": ("Client", "Lock", "connect"),
    "current": ("current_lease",),
    "decorator": ("locked",),
    "engines.base": ("Guarantees", "Holder", "LockState", "Waiter"),
    "lease": ("Lease",),
    "options": ("Duration",),
    "settings": ("configure",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}
_MODULES = frozenset({"aio", "fencing", "observer"})


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"holdfast.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"holdfast.{_HOME.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
