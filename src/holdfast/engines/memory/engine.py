"""The engine of ``memory:``: settings, guarantees, and the stores of this process."""

from __future__ import annotations

import threading
from typing import Any, Final

from holdfast._runtime.base import Runtime
from holdfast.engines.base import Guarantees, Kind
from holdfast.engines.memory.keeper import MemoryKeeper
from holdfast.engines.memory.session import MemorySession
from holdfast.engines.memory.store import Store

_GUARANTEES: Final = Guarantees(
    cross_process=False,
    cross_host=False,
    fair=True,
    fencing=True,
    survives_restart=False,
    survives_failover=False,
    needs_clocks="none beyond this process's own",
    loss_bound="none: the store and the holder share one clock",
    shared=True,
    permits=True,
    registers=True,
    detach=True,
    state_bound="state lasts as long as the process",
)

_stores: dict[str, Store] = {}


class MemoryEngine:
    """Settings of ``memory:``: the name of a store."""

    scheme = "memory"
    guarantees = _GUARANTEES
    kinds = frozenset({Kind.LOCK, Kind.RWLOCK, Kind.SEMAPHORE})
    reserves_tokens = True
    strict_order = False
    replicates = False
    early_watch = False

    def __init__(self, name: str) -> None:
        self._name = name

    def validate_name(self, name: str) -> None:
        pass

    def session(self, runtime: Runtime) -> MemorySession:
        return MemorySession(_stores.setdefault(self._name, Store()), runtime)

    def keeper(self, runtime: Runtime) -> MemoryKeeper:
        return MemoryKeeper(_stores.setdefault(self._name, Store()), runtime)

    def after_fork_in_child(self) -> None:
        for store in list(_stores.values()):  # what was made of it before may still leave its queues
            store.lock = threading.RLock()
        _stores.clear()

    def __repr__(self) -> str:
        return f"<memory engine {self._name!r}>" if self._name else "<memory engine>"


def connect(target: str, options: dict[str, Any]) -> MemoryEngine:
    """The engine for ``memory:`` and ``memory:NAME``. It has no options; its tokens last as long as the process."""
    return MemoryEngine(target)
