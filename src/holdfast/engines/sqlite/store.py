"""One lock file as seen by one process: a connection, an identity, and statements that run one at a time."""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn

from holdfast._runtime import clock
from holdfast.engines.base import RequestFailed
from holdfast.engines.sqlite import (
    durability,
    faults,
    liveness,
    opening,
    paths,
    register_statements,
    schema,
    statements,
)
from holdfast.engines.sqlite.anchor import Anchor
from holdfast.engines.sqlite.housekeeping import Sweep, sweep_directory
from holdfast.engines.sqlite.kernel import boot_id
from holdfast.engines.sqlite.liveness import Liveness
from holdfast.engines.sqlite.notes import AWAITED, NOWHERE, UNMARKED, OwnNotes
from holdfast.engines.sqlite.process_watch import ProcessListener, ProcessWatch
from holdfast.engines.sqlite.wakeup_socket import FOR_WAITER, WakeupSocket, is_for_watchdog, send_wakeup
from holdfast.errors import EngineRefused

Value = str | bytes | int | None
Parameters = Sequence[Value] | Mapping[str, Value]
# Seconds between two rounds of housekeeping, and how many rows each one examines: about a millisecond.
_HOUSEKEEPING_EVERY: Final = 20.0
_HOUSEKEEPING_ROWS: Final = 2000
# Housekeeping keeps pace with use: after this many new names, this many rows are examined.
_NEW_NAMES: Final = 128
_ROWS_FOR_THEM: Final = 512
# Writes between two checkpoints. A short log stays in the cache.
_CHECKPOINT_EVERY: Final = 200
_LOOK_EVERY: Final = 0.25
# More are needed only while more callers of this process wait at the same time.
_MOST_IDLE_SOCKETS: Final = 4
# The proof of our death is kept this much longer than our leases need it, so that it is rarely extended. In µs.
_PROOF_AHEAD: Final = 60_000_000
# Grants that are remembered. A program that uses each name once does not fill the memory.
_MOST_REMEMBERED: Final = 1024
# What is known of an owner that this process has written and not released.
UNAWAITED: Final = NOWHERE
WAITED: Final = 1  #: it was granted to a waiter, so others may wait, too
NOTED: Final = 2  #: its release was noted, and a waiter is to be woken
# A larger number is the place for the note of its release.
_exists: Final = os.access
_F_OK: Final = os.F_OK


class Store:
    """Shared by all clients and threads of the process: created, counted and closed by :mod:`.stores`.

    The lock is held for one statement (tens of µs) and never during a wait. It is re-entrant, so that a signal handler
    that uses a lock, or forks, does not wait for the thread that it interrupted.
    """

    def __init__(
        self, path: str, token_ttl: float | None, former: Collection[str] = (), *, suspect: bool = False
    ) -> None:
        self.path = path
        self.users: set[object] = set()
        self.abandoned = False  #: inherited by a fork, or displaced: open another store
        self.suspect = suspect  #: SQLite has found damage in the file
        self.former = frozenset(former)  #: identities that this process had in stores that were displaced
        #: Owners that this process has written and not released, and what is known of each.
        self.held: dict[str, int] = {}
        #: The tokens of the last direct grants of some names in this process, by name, ttl (µs) and description.
        self.last_grants: dict[tuple[str, int, bytes], int] = {}
        self.look_at = 0.0  #: when to check again whether the files were displaced
        self.durable = False  #: the file is known to contain user data
        self.proven_until = 0  #: rows of this process may have an expiry up to this (µs)
        self._housekeeping_at = 0.0
        self._writes = 0
        self._last_row = 0
        self._new_names = 0
        self._lock = threading.RLock()
        self._sockets: set[WakeupSocket | ProcessWatch] = set()
        self._idle_sockets: list[WakeupSocket] = []  # of those, the ones without a waiter
        self._socket_numbers = itertools.count()
        self._connection: sqlite3.Connection | None = None
        self._anchor: Anchor | None = None
        self.directory = paths.secure(path)
        try:
            self.boot = boot_id()
            # The flock is taken before the first row with this identity is written: a row's process was alive once.
            self._liveness = Liveness(self.directory.fileno)
            self.process = self._liveness.identity
            self.notes = OwnNotes(self.directory, self.process)
            self._liveness_path = os.fsencode(os.path.join(self.directory.path, self.process))
        except OSError as error:
            self.directory.close()
            raise faults.of_system(error, path) from error
        self._sweep = Sweep(self.boot, token_ttl)
        self._listener: ProcessListener | None = None
        try:
            self._listener = self._listen()
            self._connect()
            self._sweep_directory()
            self.run_housekeeping(clock.now())
        except BaseException:
            self.close()
            raise

    def _listen(self) -> ProcessListener | None:
        try:
            return ProcessListener(self.directory, self.process)
        except OSError:
            return None

    def write(self, statement: str, parameters: Parameters, *, durable: bool = False) -> int:
        """Run one writing statement, which is one transaction; returns how many rows it changed.

        ``durable``: it is on the disk then. Raises Displaced if the path does not lead to these files any more: then
        the write is void.
        """
        with self._lock:
            connection = self._connection or self._connect()
            try:
                if durable:
                    cursor = self._execute_durably(connection, statement, parameters)
                else:
                    cursor = connection.execute(statement, parameters)
            except sqlite3.Error as error:
                self._raise_unless_closed(error, connection)
                return self.write(statement, parameters, durable=durable)
            # Before any lock is granted in other files, our liveness file is removed (opening.py), or its directory
            # was. So one cheap check of a path, after the write, shows whether the write is valid.
            # (os.access checks for the real uid, which may differ.)
            if not _exists(self._liveness_path, _F_OK) and not os.path.exists(self._liveness_path):
                self._raise_displaced()
            self._writes += 1
            if self._writes >= _CHECKPOINT_EVERY:
                self._checkpoint()
            if cursor.lastrowid != self._last_row:
                self._count_new_name(cursor.lastrowid or 0)
            return cursor.rowcount

    def note_release(self, name: str, owner: str, place: int) -> bool:
        """Release by a note. False: a statement is to release it, only or as well."""
        with self._lock:
            mark = None if self.abandoned else self.notes.write(name, owner, place)
            if not _exists(self._liveness_path, _F_OK) and not os.path.exists(self._liveness_path):
                self._raise_displaced()
            if mark == UNMARKED:
                self.held.pop(owner, None)
                return True
            if mark == AWAITED:
                self.held[owner] = NOTED
            return False

    def _write_out_notes(self) -> bool:
        """Before the end of this process's identity: release in the lock file what was released by notes. False: the
        proof of its death must stay."""
        try:
            for name, owner in list(self.notes.owners.items()):
                self.write(statements.FREE, (time.time_ns() // 1000, name, owner, self.process))
                self.notes.owners.pop(name, None)
        except (faults.Contended, RequestFailed, EngineRefused):
            return False
        return True

    def was_noted(self, owner: str) -> bool:
        """Whether the release of ``owner`` was noted, so that it counts whatever a statement has found."""
        if self.held.get(owner) != NOTED:
            return False
        self.held.pop(owner, None)
        return True

    def _execute_durably(
        self, connection: sqlite3.Connection, statement: str, parameters: Parameters
    ) -> sqlite3.Cursor:
        if not self.durable:
            try:
                durability.mark(self.directory)
            except OSError as error:
                raise faults.of_system(error, self.path) from error
            connection.execute(statements.REMEMBER, (durability.NOTE, 1))
            self.durable = True
        schema.set_sync(connection, schema.COMMITS)
        try:
            cursor = connection.execute(statement, parameters)
        finally:
            schema.set_sync(connection, schema.CHECKPOINTS)
        if self._anchor is not None and not self._anchor.in_place():
            self._raise_displaced()  # removed, and no process has opened other files yet
        return cursor

    def read(self, statement: str, parameters: Parameters) -> list[tuple[Any, ...]]:
        """Run one reading statement to its end."""
        with self._lock:
            while True:
                connection = self._connection or self._connect()
                try:
                    return connection.execute(statement, parameters).fetchall()
                except sqlite3.Error as error:
                    self._raise_unless_closed(error, connection)

    def _raise_unless_closed(self, error: sqlite3.Error, connection: sqlite3.Connection) -> None:
        """Return if the statement did not run because a signal handler of this thread has forked: it is repeated."""
        if connection is not self._connection:
            return
        if faults.is_damage(error) and not self.suspect:
            self.suspect = True
            self._raise_displaced()  # the next opening checks the file, and replaces it if no other process uses it
        raise faults.of_sqlite(error, self.path) from error

    def _raise_displaced(self) -> NoReturn:
        self.abandon()
        raise faults.Displaced(self.path)

    def abandon(self) -> None:
        """Close files that were displaced; what was written to them is void. Other users open another store."""
        with self._lock:
            self.abandoned = True
            for own in list(self._sockets):
                if isinstance(own, WakeupSocket) and is_for_watchdog(own.name):
                    send_wakeup(self.directory, own.name, opening.ABOUT_ALL)
            self._close_files()

    def _close_files(self) -> None:
        """Each is forgotten once it is closed, and not before: what a signal interrupts, the next call does again."""
        connection, anchor = self._connection, self._anchor
        if anchor is not None and not self.abandoned and anchor.in_place():
            anchor.let_go()  # only then: SQLite would copy an old log into a file that others have created since
        if connection is not None:
            try:
                with self._checkpointing(connection):
                    connection.close()  # the last process's close is a checkpoint
            except (faults.Contended, OSError, sqlite3.Error):
                # Perhaps another process is about to write the first user data.
                with contextlib.suppress(sqlite3.Error):
                    schema.set_sync(connection, schema.CHECKPOINTS)
                connection.close()
            self._connection = None
        if anchor is not None:
            anchor.close()
            self._anchor = None

    def _checkpoint(self) -> None:
        """Copy the log into the file, as far as no process reads an older state. The log then starts over."""
        self._writes = 0
        # The write before it has happened and must not be reported as failed.
        with contextlib.suppress(sqlite3.Error, faults.Contended, OSError):
            connection = self._connection
            if connection is not None:
                with self._checkpointing(connection):
                    connection.execute(statements.CHECKPOINT).fetchall()

    @contextlib.contextmanager
    def _checkpointing(self, connection: sqlite3.Connection) -> Iterator[None]:
        """For a checkpoint that is synced if the file contains user data, perhaps since a moment ago."""
        if self.durable:
            yield
            return
        with durability.checkpointing(self.directory) as self.durable:
            if self.durable:
                schema.set_sync(connection, schema.CHECKPOINTS)
            yield

    def make_room(self) -> None:
        """Before another grant is remembered: forget the others if there are many."""
        if len(self.last_grants) >= _MOST_REMEMBERED:
            self.last_grants = {}

    def _count_new_name(self, row: int) -> None:
        self._last_row = row
        self._new_names += 1
        if self._new_names >= _NEW_NAMES:
            self._new_names = 0
            self._sweep_rows(clock.now(), _ROWS_FOR_THEM)

    def is_dead(self, process: str) -> bool:
        """Whether the process that wrote a row has certainly ended, or is a former identity of this process."""
        if process == self.process:
            return False
        return process in self.former or liveness.is_dead(self.directory.fileno, process)

    def extend_proof(self, expires: int, now: int) -> None:
        """Called before a row of ours is valid until ``expires``: if we die, the proof is kept for that long."""
        self.proven_until = expires + _PROOF_AHEAD
        with contextlib.suppress(OSError):
            self._liveness.keep_until(time.time() + (self.proven_until - now) / 1_000_000)

    def is_displaced(self, now: float) -> bool:
        """Whether the open files were deleted or replaced ("rm the stuck lock"): other processes then lock in others.

        Called when ``look_at`` has passed, a few times a second, for callers that only read or wait.
        """
        self.look_at = now + _LOOK_EVERY
        anchor = self._anchor
        if not self.abandoned and (anchor is None or anchor.in_place()) and os.path.exists(self._liveness_path):
            return False
        self.abandon()
        return True

    def liveness_fileno(self) -> int:
        """To be passed to a child process that keeps this process's locks alive, as flock(1) does."""
        return self._liveness.fileno

    def wakeup_socket(self, kind: str) -> WakeupSocket:
        """A new wake-up socket of this process. OSError where none can be created."""
        created = WakeupSocket(self.directory, f"{self.process}.{kind}-{next(self._socket_numbers)}")
        self._sockets.add(created)
        return created

    def waiter_socket(self) -> WakeupSocket:
        """A wake-up socket for a waiter: one that another has left, or a new one. OSError where none can be created."""
        try:
            kept = self._idle_sockets.pop()
        except IndexError:
            return self.wakeup_socket(FOR_WAITER)
        kept.drain()
        return kept

    def keep_waiter_socket(self, own: WakeupSocket) -> None:
        """Leave it to the next waiter: its file is created and removed less often."""
        if self.abandoned or len(self._idle_sockets) >= _MOST_IDLE_SOCKETS:
            self.close_socket(own)
        else:
            self._idle_sockets.append(own)

    def watch_process(self, process: str) -> ProcessWatch:
        """A new watch on another process. OSError where none is possible."""
        watch = ProcessWatch(self.directory, process)
        self._sockets.add(watch)
        return watch

    def close_socket(self, own: WakeupSocket | ProcessWatch) -> None:
        self._sockets.discard(own)
        own.close()

    def wakeup_sockets_of(self, process: str, kind: str) -> list[str]:
        """The names of all wake-up sockets of one kind of a process."""
        try:
            return [name for name in os.listdir(self.directory.fileno) if name.startswith(f"{process}.{kind}-")]
        except OSError:
            return []  # no descriptor left to read the directory with: that process finds out at its next renewal

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
        self.suspect = False  # the opening has checked the file
        if self.directory.fileno < 0:  # a signal handler has forked meanwhile, and this is the child
            self._close_files()
            raise faults.Displaced(self.path)
        self.durable = durability.is_marked(self.directory)
        if self._anchor.log_size() > schema.LOG_LIMIT:
            self._checkpoint()  # with many processes and few writes each, none would reach the number of writes
        return connection

    def _sweep_directory(self) -> None:
        try:
            sweep_directory(self.directory.fileno, self.process, self._forget_process)
        except (faults.Contended, OSError):
            pass  # the next process that opens the file does it

    def _forget_process(self, dead: str) -> None:
        self.write(statements.REMOVE_DEAD_EVERYWHERE, (dead,))
        self.write(register_statements.REMOVE_DEAD_WAITERS, (dead,))

    def run_housekeeping(self, now: float) -> None:
        """Run a step of housekeeping, if one is due."""
        if now < self._housekeeping_at:
            return
        self._housekeeping_at = now + _HOUSEKEEPING_EVERY
        if self._listener is not None:
            self._listener.drop_watches()
        self._sweep_rows(now, _HOUSEKEEPING_ROWS)

    def _sweep_rows(self, now: float, rows: int) -> None:
        def run(statement: str, parameters: Any) -> Any:
            return (self._connection or self._connect()).execute(statement, parameters).fetchall()

        with self._lock, contextlib.suppress(faults.Contended, sqlite3.Error):
            self._sweep.go_on(run, now, rows)

    def quiesce(self) -> None:
        """Before a fork: wait for the running statement, block others, and close the connection."""
        self._lock.acquire()
        if self._connection is not None:
            self._connection.close()  # the anchor stays, so that neither this nor another process removes the log
            self._connection = None

    def resume(self) -> None:
        """After a fork, in the parent. The next statement opens the connection again."""
        self._lock.release()

    def disown(self) -> None:
        """After a fork, in the child: close every inherited descriptor; change nothing that belongs to the parent."""
        self.abandoned = True
        self._lock = threading.RLock()
        self._liveness.disown()
        self.notes.disown()
        if self._listener is not None:
            self._listener.disown()
        if self._anchor is not None:
            self._anchor.close()
            self._anchor = None
        for own in self._sockets:
            own.disown()
        self._sockets.clear()
        self.directory.close()

    def close(self) -> None:
        """End this process's identity. Locks that are still held become free now, as if the process had died."""
        with self._lock:
            if self.directory.fileno < 0:
                return
            displaced, all_written = self.abandoned, self._write_out_notes()
            self._close_files()
            self.abandoned = True
            for own in list(self._sockets):
                self.close_socket(own)
            if self._listener is not None:
                self._listener.close()
            # Our death says it too, but may not be known: a command may have our liveness file open.
            self.notes.close(unlink=all_written or displaced)
            self._liveness.close(unlink=all_written and not self.held)
            self.directory.close()
