"""Several processes that start together: fresh interpreters, kept over the rounds."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing.synchronize import Barrier
from threading import BrokenBarrierError
from types import TracebackType
from typing import Any, Final, Self, TypeVar

T = TypeVar("T")
_PATIENCE: Final = 60.0

_start: Barrier | None = None
_among: Barrier | None = None


def ready() -> None:
    """In a worker: prepared. Returns when all of the crew are, and the clock starts."""
    assert _start is not None
    _start.wait(_PATIENCE)


def meet() -> None:
    """In a worker: wait for all other workers."""
    assert _among is not None
    _among.wait(_PATIENCE)


def _enlist(start: Barrier, among: Barrier) -> None:
    global _start, _among
    _start, _among = start, among


class Crew:
    """``size`` processes. Each call of :meth:`work` gives every process one task, which must call ``ready`` once."""

    def __init__(self, size: int) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would inherit our clients and their connections
        self._size = size
        self._start = context.Barrier(size + 1)
        self._pool = ProcessPoolExecutor(
            size, mp_context=context, initializer=_enlist, initargs=(self._start, context.Barrier(size))
        )

    def work(
        self, task: Callable[..., T], arguments: Sequence[tuple[Any, ...]], at_start: Callable[[], object] | None = None
    ) -> list[T]:
        """Run ``task(*arguments[i])`` in process i, all at once. ``at_start`` is called when all are ready."""
        assert len(arguments) == self._size
        running = [self._pool.submit(task, *given) for given in arguments]
        self._await_start(running)
        if at_start is not None:
            at_start()
        return [future.result() for future in running]

    def _await_start(self, running: list[Future[T]]) -> None:
        def failed(future: Future[T]) -> None:
            if future.exception() is not None:
                self._start.abort()  # the others, and we, would wait for it in vain

        for future in running:
            future.add_done_callback(failed)
        try:
            self._start.wait(_PATIENCE)
        except BrokenBarrierError as broken:
            causes = [future.exception() for future in running]
            raise next((one for one in causes if one and not isinstance(one, BrokenBarrierError)), broken) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)
