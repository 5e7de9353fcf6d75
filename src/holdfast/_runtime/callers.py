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


def current_caller() -> Hashable:
    """The running caller. Never equal to a caller that has ended."""
    thread = _threads.running
    # asyncio is not imported here: it is slow to import, and without it no loop runs.
    loop = (_running_loop or _find_running_loop())() if "asyncio" in _modules else None
    if loop is not None:
        task = _modules["asyncio"].current_task(loop)
        # In a callback of the loop two callers cannot be distinguished: each call counts as a caller of its own.
        return object() if task is None else identity(task)
    if thread.pool is not None or _ASGIREF in _modules:
        job = _running_job()
        if job is not None:
            return job
    marker = _marker.get()
    if marker is None or marker.thread is not thread:
        marker = _Marker(thread)
        _marker.set(marker)
    return marker


_running_loop: Callable[[], Any] | None = None  # asyncio's function, once it was found


def _find_running_loop() -> Callable[[], Any]:
    global _running_loop
    _running_loop = getattr(_modules.get("asyncio"), "_get_running_loop", None)
    return _running_loop or _no_loop


def _no_loop() -> None:
    """Another thread is importing asyncio at this moment: no loop runs yet."""


def identity(thing: object) -> Hashable:
    """A key that does not keep ``thing`` alive. A task keeps its result, often a Lease, which must be collectable.

    Weak references are equal while their object lives, and only to themselves afterwards. The hash must be computed
    while the object lives.
    """
    reference = weakref.ref(thing)
    hash(reference)
    return reference


class _Thread:
    """Identifies a thread. (Python may reuse an ident, or a Thread object, after the thread's end.)"""

    __slots__ = ("pool",)

    def __init__(self) -> None:
        target = getattr(threading.current_thread(), "_target", None)
        module = getattr(target or type(threading.current_thread()), "__module__", None)
        self.pool: str | None = module if module in _POOLS else None  #: whose jobs it runs


class _Threads(threading.local):
    def __init__(self) -> None:
        self.running = _Thread()


class _Marker:
    """The caller that runs in a context, on one thread. Stored in the context.

    A copy of the context contains the same marker. If it runs on another thread, as each job of ``asyncio.to_thread``
    or ``anyio.to_thread`` does, it gets a new one.
    """

    __slots__ = ("thread",)

    def __init__(self, thread: _Thread) -> None:
        self.thread = thread


_ASGIREF: Final = "asgiref.current_thread_executor"
_modules: Final = sys.modules
_marker: Final[ContextVar[_Marker | None]] = ContextVar("holdfast-caller", default=None)


def _running_job() -> Hashable | None:
    """The running job of a thread pool. Its context cannot identify it: it may be a copy of an earlier job's."""
    pool = _threads.running.pool or (_ASGIREF if _ASGIREF in sys.modules else None)
    if pool is None:
        return None
    code, job = _POOLS[pool]
    try:
        run = code(sys.modules[pool])
    except (AttributeError, KeyError):
        return None  # another thread is importing it at this moment: no job of it runs yet
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
        lambda variables: (_threads.running, variables["job"], variables["i"]),
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


_threads: _Threads = _Threads()


def after_fork_in_child() -> None:
    """The child's thread is a new caller, although it is a copy of the parent's."""
    global _threads
    _threads = _Threads()
