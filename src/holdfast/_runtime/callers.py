"""Which caller is running. Re-entrancy depends on it; ownership does not: the lease decides that.

A caller is the running asyncio task; else the running job of a thread pool; else the context of the running thread.
A thread alone is not enough: two tasks, or two jobs of a pool, may share a thread, and treating them as one caller
would let both into one critical section.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping
from contextvars import ContextVar
from types import CodeType, FrameType
from typing import Any, Final


def running_task() -> Hashable | None:
    """The running asyncio task, or None."""
    asyncio: Any = sys.modules.get("asyncio")  # not imported here: it is slow to import, and without it no task runs
    loop = None if asyncio is None else asyncio._get_running_loop()
    if loop is None:
        return None
    task = asyncio.current_task(loop)
    return None if task is None else identity(task)


def current_caller() -> Hashable:
    """The running caller. Never equal to a caller that has ended."""
    modules, thread = sys.modules, _thread
    if "asyncio" in modules and modules["asyncio"]._get_running_loop() is not None:
        task = running_task()
        # In a callback of the loop two callers cannot be distinguished: each call counts as a caller of its own.
        return object() if task is None else task
    if thread.pool is not None or _ASGIREF in modules:
        job = _running_job()
        if job is not None:
            return job
    marker = _marker.get()
    if marker is None or marker.thread is not thread.identity:
        marker = _Marker(thread.identity)
        _marker.set(marker)
    return marker


def identity(thing: object) -> Hashable:
    """A key that does not keep ``thing`` alive. A task keeps its result, often a Lease, which must be collectable.

    Weak references are equal while their object lives, and only to themselves afterwards. The hash must be computed
    while the object lives.
    """
    reference = weakref.ref(thing)
    hash(reference)
    return reference


class _Thread(threading.local):
    """An object that identifies a thread. (Python may reuse an ident, or a Thread object, after the thread's end.)"""

    def __init__(self) -> None:
        self.identity = object()
        target = getattr(threading.current_thread(), "_target", None)
        module = getattr(target or type(threading.current_thread()), "__module__", None)
        self.pool: str | None = module if module in _POOLS else None  #: whose jobs it runs


class _Marker:
    """The caller that runs in a context, on one thread. Stored in the context.

    A copy of the context contains the same marker. If it runs on another thread, as each job of ``asyncio.to_thread``
    or ``anyio.to_thread`` does, it gets a new one.
    """

    __slots__ = ("thread",)

    def __init__(self, thread: object) -> None:
        self.thread = thread


_ASGIREF: Final = "asgiref.current_thread_executor"
_marker: Final[ContextVar[_Marker | None]] = ContextVar("holdfast-caller", default=None)


def _running_job() -> Hashable | None:
    """The running job of a thread pool. Its context cannot identify it: it may be a copy of an earlier job's."""
    pool = _thread.pool or (_ASGIREF if _ASGIREF in sys.modules else None)
    if pool is None:
        return None
    code, job = _POOLS[pool]
    run = code(sys.modules[pool])
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is run:
            return job(frame.f_locals)
        frame = frame.f_back
    return None


#: For each pool, by its module: the function that runs one job, and which of its variables identify the job.
_POOLS: Final[Mapping[str, tuple[Callable[[Any], CodeType], Callable[[Mapping[str, Any]], Hashable]]]] = {
    "concurrent.futures.thread": (
        lambda module: module._WorkItem.run.__code__,
        lambda variables: identity(variables["self"]),
    ),
    "multiprocessing.pool": (
        lambda module: module.worker.__code__,
        lambda variables: (_thread.identity, variables["job"], variables["i"]),
    ),
    "anyio._backends._asyncio": (
        lambda module: module.WorkerThread.run.__code__,
        lambda variables: identity(variables["future"]),
    ),
    # Jobs that run on the thread that called ``async_to_sync``, which may be any thread.
    _ASGIREF: (
        lambda module: module._WorkItem.run.__code__,
        lambda variables: identity(variables["self"]),
    ),
}


_thread: _Thread = _Thread()


def after_fork_in_child() -> None:
    """The child's thread is a new caller, although it is a copy of the parent's."""
    global _thread
    _thread = _Thread()
