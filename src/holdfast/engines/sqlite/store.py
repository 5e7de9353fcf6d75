"""One lock file as seen by one process: a connection, an identity, and the statements run one at a time."""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
import threading
import time
from collections.abc import Collection, Sequence
from typing import Any, Final, NoReturn

from holdfast._runtime import clock
from holdfast.engines.sqlite import faults, liveness, opening, paths, schema, statements
from holdfast.engines.sqlite.anchor import Anchor
from holdfast.engines.sqlite.bell import Bell, ring
from holdfast.engines.sqlite.housekeeping import Sweep, sweep_directory
from holdfast.engines.sqlite.kernel import boot_id
from holdfast.engines.sqlite.liveness import Liveness
from holdfast.engines.sqlite.vigil import Pulse, Vigil

Value = str | bytes | int | None
# Between two rounds of housekeeping, and how many rows each looks at: about a millisecond.
_TIDY_EVERY: Final = 20.0
_TIDY_ROWS: Final = 2000
# Clean-up keeps pace with use: after so many new names, so many rows are looked at.
_NEW_NAMES: Final = 128
_ROWS_FOR_THEM: Final = 512
# Writes between two copyings of the log into the file. A short log is a warm log.
_CHECKPOINT_EVERY: Final = 200
_LOOK_EVERY: Final = 0.25
# How much longer than the lease that needs it the proof of our death is kept: it is prolonged once in that time. µs.
_VOUCH_AHEAD: Final = 60_000_000
_exists: Final = os.access


class Store:
    """Shared by all clients and threads of the process: made, counted and closed by :mod:`.stores`.

    The lock is held for one statement (tens of µs) and never over a wait. It is re-entrant, so that a signal handler
    that uses a lock, or forks, does not wait for the very thread that it interrupted.
    """

    def __init__(
        self, path: str, token_ttl: float | None, former: Collection[str] = (), *, suspect: bool = False
    ) -> None:
        self.path = path
        self.users = 0
        self.abandoned = False  #: forked away, or displaced: open another store
        self.suspect = suspect  #: SQLite has found damage in the file
        self.former = frozenset(former)  #: identities that this process had in stores that were displaced
        self.held: set[str] = set()  #: owners that this process has written and not released
        self.look_at = 0.0  #: when to ask again whether we are displaced
        self.vouched_until = 0  #: our rows may have an expiry up to this (µs)
        self._tidy_at = 0.0
        self._writes = 0
        self._last_row = 0
        self._new_names = 0
        self._lock = threading.RLock()
        self._ears: set[Bell | Vigil] = set()
        self._bell_numbers = itertools.count()
        self._connection: sqlite3.Connection | None = None
        self._anchor: Anchor | None = None
        self.directory = paths.secure(path)
        try:
            self.boot = boot_id()
            # The lock comes before the first byte of this identity in the file: a row's process was alive once.
            self._liveness = Liveness(self.directory.fileno)
            self.process = self._liveness.identity
            self._life = os.fsencode(os.path.join(self.directory.path, self.process))
        except OSError as error:
            self.directory.close()
            raise faults.of_system(error, path) from error
        self._sweep = Sweep(self.boot, token_ttl)
        self._pulse: Pulse | None = None
        try:
            self._pulse = self._begin_pulse()
            self._connect()
            self._sweep_directory()
            self.tidy(clock.now())
        except BaseException:
            self.close()
            raise

    def _begin_pulse(self) -> Pulse | None:
        try:
            return Pulse(self.directory, self.process)
        except OSError:
            return None

    def write(self, statement: str, parameters: Sequence[Value]) -> int:
        """Run one writing statement, which is one transaction; returns how many rows it changed.

        Raises Displaced if that was in files which the path does not lead to any more: it counts for nothing.
        """
        with self._lock:
            cursor = None
            while cursor is None:
                connection = self._connection or self._connect()
                try:
                    cursor = connection.execute(statement, parameters)
                except sqlite3.Error as error:
                    self._raise_unless_closed(error, connection)
            # Before any lock is granted in files that are not these, our liveness file is removed (opening.py), or its
            # directory was. So one cheap look at a path, after the write, tells whether the write counts.
            if not _exists(self._life, os.F_OK) and not os.path.exists(self._life):  # (the first asks for the real uid)
                self._raise_displaced()
            self._writes += 1
            if self._writes >= _CHECKPOINT_EVERY:
                self._checkpoint()
            if cursor.lastrowid != self._last_row:
                self._count_new_name(cursor.lastrowid or 0)
            return cursor.rowcount

    def read(self, statement: str, parameters: Sequence[Value]) -> list[tuple[Any, ...]]:
        """Run one reading statement to its end."""
        with self._lock:
            while True:
                connection = self._connection or self._connect()
                try:
                    return connection.execute(statement, parameters).fetchall()
                except sqlite3.Error as error:
                    self._raise_unless_closed(error, connection)

    def _raise_unless_closed(self, error: sqlite3.Error, connection: sqlite3.Connection) -> None:
        """Return if the statement did not run because a signal handler of this thread has forked: it runs again."""
        if connection is not self._connection:
            return
        if faults.is_damage(error) and not self.suspect:
            self.suspect = True
            self._raise_displaced()  # opened again, the file is checked; and replaced, if no other process uses it
        raise faults.of_sqlite(error, self.path) from error

    def _raise_displaced(self) -> NoReturn:
        self.abandon()
        raise faults.Displaced(self.path)

    def abandon(self) -> None:
        """Close files that were displaced; what was written in them is void. Other users find another store."""
        with self._lock:
            self.abandoned = True
            for ear in list(self._ears):
                if isinstance(ear, Bell) and ".doze-" in ear.name:
                    ring(self.directory, ear.name, opening.ABOUT_ALL)
            self._close_files()

    def _close_files(self) -> None:
        connection, self._connection = self._connection, None
        anchor, self._anchor = self._anchor, None
        if anchor is not None and not self.abandoned and anchor.in_place():
            anchor.let_go()  # else SQLite would copy an old log into a file that others have begun anew
        if connection is not None:
            connection.close()
        if anchor is not None:
            anchor.close()

    def _checkpoint(self) -> None:
        """Copy the log into the file, as far as no process reads an older state. The log begins anew after that."""
        self._writes = 0
        with contextlib.suppress(sqlite3.Error):  # the write before it has happened, and must not fail
            if self._connection is not None:
                self._connection.execute(statements.CHECKPOINT).fetchall()

    def _count_new_name(self, row: int) -> None:
        self._last_row = row
        self._new_names += 1
        if self._new_names >= _NEW_NAMES:
            self._new_names = 0
            self._go_round(clock.now(), _ROWS_FOR_THEM)

    def is_dead(self, process: str) -> bool:
        """Has the process that wrote a row certainly ended, or is it us before the files were displaced?"""
        if process == self.process:
            return False
        return process in self.former or liveness.is_dead(self.directory.fileno, process)

    def vouch(self, expires: int, now: int) -> None:
        """Before a row of ours may count until ``expires``: if we die, the proof of it is kept for as long."""
        self.vouched_until = expires + _VOUCH_AHEAD
        with contextlib.suppress(OSError):
            self._liveness.keep_until(time.time() + (self.vouched_until - now) / 1_000_000)

    def is_displaced(self, now: float) -> bool:
        """Were the files deleted or replaced under us ("rm the stuck lock")? Then others lock in other ones.

        Asked when ``look_at`` has come, a few times a second: for callers that only read, and wait.
        """
        self.look_at = now + _LOOK_EVERY
        anchor = self._anchor
        if not self.abandoned and (anchor is None or anchor.in_place()) and os.path.exists(self._life):
            return False
        self.abandon()
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
            raise faults.Displaced(self.path)
        try:
            if self._anchor is not None:
                connection = opening.open_again(self.path, self.directory, self._anchor)
            else:
                connection, self._anchor = opening.open_files(
                    self.path, self.directory, self.boot, self.process, self.former, suspect=self.suspect
                )
        except sqlite3.Error as error:
            raise faults.of_sqlite(error, self.path) from error
        except OSError as error:
            raise faults.of_system(error, self.path) from error
        except faults.Displaced:
            self.abandon()
            raise
        self._connection = connection
        self.suspect = False  # it has been checked
        if self.directory.fileno < 0:  # a signal handler has forked meanwhile, and this is the child
            self._close_files()
            raise faults.Displaced(self.path)
        if self._anchor.log_size() > schema.LOG_LIMIT:
            self._checkpoint()  # many processes with few writes each: none of them would come to it
        return connection

    def _sweep_directory(self) -> None:
        try:
            sweep_directory(
                self.directory.fileno, self.process, lambda dead: self.write(statements.BURY_EVERYWHERE, (dead,))
            )
        except (faults.Contended, OSError):
            pass  # the next one who opens the file will

    def tidy(self, now: float) -> None:
        """A little housekeeping, now and then."""
        if now < self._tidy_at:
            return
        self._tidy_at = now + _TIDY_EVERY
        if self._pulse is not None:
            self._pulse.hang_up()
        self._go_round(now, _TIDY_ROWS)

    def _go_round(self, now: float, rows: int) -> None:
        def run(statement: str, parameters: Any) -> Any:
            return (self._connection or self._connect()).execute(statement, parameters).fetchall()

        with self._lock, contextlib.suppress(faults.Contended, sqlite3.Error):
            self._sweep.go_on(run, now, rows)

    def quiesce(self) -> None:
        """Before a fork: wait for the running statement, shut others out, and leave no connection to inherit."""
        self._lock.acquire()
        if self._connection is not None:
            self._connection.close()  # the anchor stays: SQLite neither tidies up here nor in another process
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
        if self._anchor is not None:
            self._anchor.close()
            self._anchor = None
        for ear in self._ears:
            ear.disown()
        self._ears.clear()
        self.directory.close()

    def close(self) -> None:
        """End this process's identity. Locks that are still held are free for others at once, as if it had died."""
        with self._lock:
            if self.directory.fileno < 0:
                return
            self._close_files()
            self.abandoned = True
            for ear in list(self._ears):
                self.close_ear(ear)
            if self._pulse is not None:
                self._pulse.close()
            self._liveness.close(unlink=not self.held)
            self.directory.close()
