"""The runner's signals: they end the wait for the lock; while the command runs, they are passed on to it."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection
from types import FrameType, TracebackType
from typing import Any, Final, Self

from holdfast._runtime import clock
from holdfast.cli.run import descendants

#: Passed on to the command's process group.
PASSED_ON: Final = frozenset(
    {
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGWINCH,
    }
)
#: Those of them that end a process by default, and so end a wait for the lock.
ENDING: Final = PASSED_ON - {signal.SIGWINCH}
#: Handled only for waking up: a descendant has ended; the job was continued.
_WAKING: Final = frozenset({signal.SIGCHLD, signal.SIGCONT})
#: Python ignores what a handler raises inside a finalizer. A signal this many seconds later raises again.
_RAISE_AGAIN: Final = 1.0
#: Written to the pipe by :meth:`Signals.wake`; no signal has this number.
_WAKE: Final = b"\0"


class Signalled(BaseException):
    """A signal that ends the wait for the lock. Not an Exception: the lock's own code must not handle it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Signals:
    """Installs handlers for the duration of the block. Signals that were ignored before stay ignored (nohup).

    It starts in the state *interrupting*: the first signal of ENDING raises Signalled in the main thread, later ones do
    not interrupt the clean-up. After :meth:`collect` signals only appear in :meth:`take`.
    """

    def __init__(self, ignored: Collection[int]) -> None:
        self._ignored = ignored
        self._before: dict[int, Any] = {}
        self._interrupting = True
        self._raised_at: float | None = None
        self._raised: Signalled | None = None
        self._previous_wakeup = -1
        self.reading, self._writing = os.pipe()
        os.set_blocking(self.reading, False)
        os.set_blocking(self._writing, False)

    def __enter__(self) -> Self:
        self._previous_wakeup = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        for number in (PASSED_ON | _WAKING) - set(self._ignored):
            self._before[number] = signal.signal(number, self._received)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._interrupting = False
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._previous_wakeup)
        writing, self._writing = self._writing, -1  # first: another thread may still call ``wake``
        os.close(self.reading)
        os.close(writing)

    def collect(self) -> None:
        """From now on signals are collected, job control's stop signal too."""
        self._interrupting = False
        if signal.SIGTSTP not in self._ignored:
            self._before.setdefault(signal.SIGTSTP, signal.signal(signal.SIGTSTP, self._received))

    def check(self) -> None:
        """Raise what a handler raised in a finalizer, where Python ignored it."""
        if self._raised is not None:
            raise self._raised

    def interrupt(self) -> None:
        """From now on a signal raises Signalled, once."""
        self.take()
        self._raised_at = self._raised = None
        self._interrupting = True

    def take(self) -> list[int]:
        """The signals that were collected, in order of arrival, without those that only wake."""
        try:
            numbers = os.read(self.reading, 4096)
        except BlockingIOError:
            return []
        return [number for number in numbers if number not in (0, signal.SIGCHLD)]

    def wake(self, *_: object) -> None:
        """Wake the main thread. From any thread."""
        try:
            os.write(self._writing, _WAKE)
        except OSError:
            pass  # full: the main thread will wake anyway; closed: it has ended

    def stop_with(self, number: int) -> None:
        """Stop this job, as ``number`` does by default, and return when it was continued.

        Returns at once where job control cannot stop it: in an orphaned process group, as under ``ssh -t``.
        """
        handler = signal.signal(number, signal.SIG_DFL)
        os.killpg(os.getpgrp(), number)
        signal.signal(number, handler)

    def _received(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGCHLD:
            descendants.reap()  # as process 1 of a container the runner adopts all orphans
            return
        if not self._interrupting or number not in ENDING:
            return
        now = clock.now()
        if self._raised_at is None or now - self._raised_at > _RAISE_AGAIN:
            self._raised_at = now
            self._raised = Signalled(number)
            raise self._raised
