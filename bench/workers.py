"""Worker processes that start each round together: fresh interpreters, reused in all rounds."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing.synchronize import Barrier
from threading import BrokenBarrierError
from types import TracebackType
from typing import Any, Final, Self, TypeVar

T = TypeVar("T")
_BARRIER_TIMEOUT: Final = 60.0

_start: Barrier | None = None
_between_workers: Barrier | None = None


def ready() -> None:
    """In a worker: report that it is prepared. Returns when all workers are, and the clock starts."""
    assert _start is not None
    _start.wait(_BARRIER_TIMEOUT)


def meet() -> None:
    """In a worker: wait for all other workers."""
    assert _between_workers is not None
    _between_workers.wait(_BARRIER_TIMEOUT)


def _set_barriers(start: Barrier, between_workers: Barrier) -> None:
    global _start, _between_workers
    _start, _between_workers = start, between_workers


class Workers:
    """``size`` processes. Each call of :meth:`work` gives every process one task, which must call ``ready`` once."""

    def __init__(self, size: int) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would inherit our clients and their connections
        self.size = size
        self._start = context.Barrier(size + 1)
        self._pool = ProcessPoolExecutor(
            size, mp_context=context, initializer=_set_barriers, initargs=(self._start, context.Barrier(size))
        )

    def work(
        self, task: Callable[..., T], arguments: Sequence[tuple[Any, ...]], at_start: Callable[[], object] | None = None
    ) -> list[T]:
        """Run ``task(*arguments[i])`` in process i, all at once. ``at_start`` is called when all are ready."""
        assert len(arguments) == self.size
        running = [self._pool.submit(task, *given) for given in arguments]
        self._await_start(running)
        if at_start is not None:
            at_start()
        return [future.result() for future in running]

    def _await_start(self, running: list[Future[T]]) -> None:
        def failed(future: Future[T]) -> None:
            if future.exception() is not None:
                self._start.abort()  # otherwise the parent and the other workers would wait for it until the timeout

        for future in running:
            future.add_done_callback(failed)
        try:
            self._start.wait(_BARRIER_TIMEOUT)
        except BrokenBarrierError as broken:
            causes = [future.exception() for future in running]
            raise next((each for each in causes if each and not isinstance(each, BrokenBarrierError)), broken) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)
