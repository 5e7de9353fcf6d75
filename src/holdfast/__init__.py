"""Distributed locks for Python that tell you when you lose them.

``connect(url)`` returns a Client, ``client.lock(name)`` a Lock, ``with lock as lease:`` a Lease. Read ``client.py``
first.

The public API:

* ``client.py``, ``lease.py``: Client, Lock and Lease; ``aio.py``, ``async_lease.py``: the same for asyncio;
  ``base_client.py``: what both share
* ``primitives/``: read-write locks, semaphores, conditions, monitors, latches, barriers, elections, multi-locks
* ``errors.py``: all errors
* ``decorator/``: ``locked``; ``current.py``: ``current_lease``; ``default_clients.py``: the clients behind
  ``@holdfast.locked``
* ``connect_options.py``: the keywords of ``connect`` and ``configure``, for type checkers
* ``fencing/``: fences; ``observer/``: events; ``compat/``: replacements for the locks of other libraries
* ``contrib/``: integrations with frameworks
* ``testing/``: the conformance suite for engines, and a fault proxy; ``cli/``: the command ``holdfast``

Inside:

* ``_core/``: acquisition, local queue, renewal, loss; ``engines/``: one folder for each engine
* ``_runtime/``: time, sleep and threads, for sync and async; ``_config/``: ``configure``, URLs, options,
  environment, settings file
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from holdfast._version import __version__

if TYPE_CHECKING:
    from holdfast import aio as aio
    from holdfast import fencing as fencing
    from holdfast import observer as observer
    from holdfast._config.durations import Duration
    from holdfast._config.settings import configure
    from holdfast.client import Client, Lock, connect
    from holdfast.connect_options import (
        ClusterOptions,
        CommonOptions,
        ConnectOptions,
        MemoryOptions,
        RedisOptions,
        SentinelOptions,
        SqliteOptions,
        ZooKeeperOptions,
    )
    from holdfast.current import current_lease
    from holdfast.decorator import locked
    from holdfast.engines.base import Guarantees, Holder, LockState, Waiter
    from holdfast.errors import (
        AcquireTimeout,
        EngineError,
        EngineRefused,
        EngineUnavailable,
        InvalidName,
        InvalidState,
        LockError,
        LockLost,
        NotHeld,
        OutcomeUnknown,
        QuorumLost,
        StaleToken,
        UsageError,
    )
    from holdfast.lease import Lease
    from holdfast.primitives.barrier import Barrier
    from holdfast.primitives.condition import Condition
    from holdfast.primitives.election import Election
    from holdfast.primitives.latch import Latch
    from holdfast.primitives.monitor import AsyncMonitor, AsyncMonitorCondition, Monitor, MonitorCondition
    from holdfast.primitives.monitor import condition as condition
    from holdfast.primitives.monitor import synchronized as synchronized
    from holdfast.primitives.multi import MultiLease, MultiLock
    from holdfast.primitives.rwlock import RWLock
    from holdfast.primitives.semaphore import Semaphore

__all__ = [
    "AcquireTimeout",
    "AsyncMonitor",
    "AsyncMonitorCondition",
    "Barrier",
    "Client",
    "ClusterOptions",
    "CommonOptions",
    "Condition",
    "ConnectOptions",
    "Duration",
    "Election",
    "EngineError",
    "EngineRefused",
    "EngineUnavailable",
    "Guarantees",
    "Holder",
    "InvalidName",
    "InvalidState",
    "Latch",
    "Lease",
    "Lock",
    "LockError",
    "LockLost",
    "LockState",
    "MemoryOptions",
    "Monitor",
    "MonitorCondition",
    "MultiLease",
    "MultiLock",
    "NotHeld",
    "OutcomeUnknown",
    "QuorumLost",
    "RWLock",
    "RedisOptions",
    "Semaphore",
    "SentinelOptions",
    "SqliteOptions",
    "StaleToken",
    "UsageError",
    "Waiter",
    "ZooKeeperOptions",
    "__version__",
    "aio",
    "condition",
    "configure",
    "connect",
    "current_lease",
    "fencing",
    "locked",
    "observer",
    "synchronized",
]

# Names are loaded when they are first used: a program that imports holdfast but takes no lock pays nothing.
_HOMES = {
    "connect_options": (
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
    "primitives.condition": ("Condition",),
    "primitives.barrier": ("Barrier",),
    "primitives.election": ("Election",),
    "primitives.latch": ("Latch",),
    "primitives.monitor": (
        "AsyncMonitor",
        "AsyncMonitorCondition",
        "Monitor",
        "MonitorCondition",
        "condition",
        "synchronized",
    ),
    "primitives.multi": ("MultiLease", "MultiLock"),
    "primitives.rwlock": ("RWLock",),
    "primitives.semaphore": ("Semaphore",),
    "_config.durations": ("Duration",),
    "_config.settings": ("configure",),
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
