"""One lock file as seen by one process: a connection, an identity, and the statements run one at a time."""

from __future__ import annotations

import itertools
import os
import sqlite3
import threading
import time
from typing import Any, Final

from holdfast._runtime import clock
from holdfast.engines.base import RequestFailed
from holdfast.engines.sqlite import faults, liveness, paths, repair, statements
from holdfast.engines.sqlite.bell import Bell
from holdfast.engines.sqlite.kernel import boot_id
from holdfast.engines.sqlite.liveness import Liveness
from holdfast.engines.sqlite.vigil import Pulse, Vigil

Value = str | bytes | int | None
# Between two rounds of housekeeping, and how many rows each looks at: a transaction of about a millisecond.
_TIDY_EVERY: Final = 20.0
_TIDY_ROWS: Final = 2000
_LOOK_EVERY: Final = 0.25


class Store:
    """Shared by all clients and threads of the process: made, counted and closed by :mod:`.stores`.

    The lock is held for one statement (tens of µs) and never over a wait. It is re-entrant, so that a signal handler
    that uses a lock, or forks, does not wait for the very thread that it interrupted.
    """

    def __init__(self, path: str, token_ttl: float | None) -> None:
        self.path = path
        self.users = 0
        self.abandoned = False  #: forked away, or the file was replaced: open another store
        self.boot = boot_id()
        self.held: set[str] = set()  #: owners that this process has written and not released
        self._token_ttl = token_ttl
        self._inode = 0
        self.look_at = 0.0  #: when to ask again whether we are displaced
        self._tidy_at = 0.0
        self._lock = threading.RLock()
        self._ears: set[Bell | Vigil] = set()
        self._bell_numbers = itertools.count()
        self._connection: sqlite3.Connection | None = None
        self.directory = paths.secure(path)
        try:
            # The lock comes before the first byte of this identity in the file: a row's process was alive once.
            self._liveness = Liveness(self.directory.fileno)
            self.process = self._liveness.identity
        except OSError as error:
            self.directory.close()
            raise faults.of_system(error, path) from error
        self._pulse: Pulse | None = None
        try:
            self._pulse = self._begin_pulse()
            self._connect()
            self._bury_the_dead()
            self.tidy(clock.now())
        except BaseException:
            self.close()
            raise

    def _begin_pulse(self) -> Pulse | None:
        try:
            return Pulse(self.directory, self.process)
        except OSError:
            return None

    def write(self, statement: str, parameters: tuple[Value, ...]) -> int:
        """Run one writing statement, which is one transaction; returns how many rows it changed."""
        with self._lock:
            try:
                return (self._connection or self._connect()).execute(statement, parameters).rowcount
            except sqlite3.Error as error:
                raise faults.of_sqlite(error, self.path) from error

    def read(self, statement: str, parameters: tuple[Value, ...]) -> list[tuple[Any, ...]]:
        """Run one reading statement to its end."""
        with self._lock:
            try:
                return (self._connection or self._connect()).execute(statement, parameters).fetchall()
            except sqlite3.Error as error:
                raise faults.of_sqlite(error, self.path) from error

    def is_dead(self, process: str) -> bool:
        """Has the process that wrote a row certainly ended?"""
        return process != self.process and liveness.is_dead(self.directory.fileno, process)

    def is_displaced(self, now: float) -> bool:
        """Was the file deleted or replaced under us ("rm the stuck lock")? Then others lock in another one.

        Asked when ``look_at`` has come, a few times a second, so that the hot path does not pay for it.
        """
        self.look_at = now + _LOOK_EVERY
        try:
            return os.stat(self.path).st_ino != self._inode
        except OSError:
            return True

    def liveness_fileno(self) -> int:
        """To be passed on to a child that shall keep this process's locks alive, as flock(1) does."""
        return self._liveness.fileno

    def bell(self, kind: str) -> Bell:
        """A new bell of this process. OSError where there can be none."""
        bell = Bell(self.directory, f"{self.process}.{kind}-{next(self._bell_numbers)}")
        self._ears.add(bell)
        return bell

    def vigil(self, process: str) -> Vigil:
        """A new vigil by another process. OSError where there can be none."""
        vigil = Vigil(self.directory, process)
        self._ears.add(vigil)
        return vigil

    def close_ear(self, ear: Bell | Vigil) -> None:
        self._ears.discard(ear)
        ear.close()

    def bells_of(self, process: str, kind: str) -> list[str]:
        """The names of a process's bells: for the few who must ring them all."""
        try:
            return [name for name in os.listdir(self.directory.fileno) if name.startswith(f"{process}.{kind}-")]
        except OSError:
            return []  # no descriptor left to read a directory with: its renewal will tell

    def _connect(self) -> sqlite3.Connection:
        if self.abandoned:
            raise RequestFailed(f"lock file {self.path}: it was closed meanwhile", may_have_happened=False)
        try:
            connection = repair.open_sound(self.path, self.directory, self.process)
            self._inode = os.stat(self.path).st_ino
        except sqlite3.Error as error:
            raise faults.of_sqlite(error, self.path) from error
        except OSError as error:
            raise faults.of_system(error, self.path) from error
        self._connection = connection
        return connection

    def _bury_the_dead(self) -> None:
        """Remove what dead processes left: first their rows, for without the file nobody could tell any more."""
        directory = self.directory.fileno
        try:
            dead = {process for process in liveness.identities(directory) if self.is_dead(process)}
            for name, process in self.read(statements.HELD, (self.boot,)) if dead else ():
                if process in dead:
                    self.write(statements.FREE_DEAD, (name, process))
            for process in dead:
                self.write(statements.BURY_EVERYWHERE, (process,))
                liveness.bury(directory, process)
        except (faults.Contended, OSError):
            pass  # the next one who opens the file will

    def tidy(self, now: float) -> None:
        """A little housekeeping: forget names that have been free for ``token_ttl``, some rows at a time."""
        if now < self._tidy_at:
            return
        self._tidy_at = now + _TIDY_EVERY
        if self._pulse is not None:
            self._pulse.hang_up()
        if self._token_ttl is None:
            return
        try:
            ((start, last),) = self.read(statements.TIDIED, ())
            end = start + _TIDY_ROWS
            self.write(statements.FORGET, (start, end, int((time.time() - self._token_ttl) * 1_000_000)))
            self.write(statements.REMEMBER, ("tidied", end if end < last else 0))
        except faults.Contended:
            pass

    def quiesce(self) -> None:
        """Before a fork: wait for the running statement, shut others out, and leave no connection to inherit."""
        self._lock.acquire()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def resume(self) -> None:
        """After a fork, in the parent. The connection comes back with the next statement."""
        self._lock.release()

    def disown(self) -> None:
        """After a fork, in the child: close every inherited descriptor; change nothing that is the parent's."""
        self.abandoned = True
        self._lock = threading.RLock()
        self._liveness.disown()
        if self._pulse is not None:
            self._pulse.disown()
        for ear in self._ears:
            ear.disown()
        self._ears.clear()
        self.directory.close()

    def close(self) -> None:
        """End this process's identity. Locks that are still held are free for others at once, as if it had died."""
        with self._lock:
            if self.directory.fileno < 0:
                return
            self.abandoned = True
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            for ear in list(self._ears):
                self.close_ear(ear)
            if self._pulse is not None:
                self._pulse.close()
            self._liveness.close(unlink=not self.held)
            self.directory.close()
