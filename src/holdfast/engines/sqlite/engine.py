"""The settings of the embedded engine."""

from __future__ import annotations

import difflib
import os
from typing import Any, Final

from holdfast.errors import UsageError

try:
    import sqlite3
except ImportError as missing:  # some distributions of Python have it in a package of its own
    raise UsageError(
        "the embedded engine needs Python's sqlite3 module, which this Python was built without; install a Python "
        "that has it, or name a lock server: connect('redis://…')"
    ) from missing

from holdfast._runtime.base import Runtime
from holdfast.engines.base import Guarantees, Kind
from holdfast.engines.sqlite.keeper import SqliteKeeper
from holdfast.engines.sqlite.paths import default_path
from holdfast.engines.sqlite.session import SqliteSession
from holdfast.errors import EngineRefused, InvalidName

_GUARANTEES: Final = Guarantees(
    cross_process=True,
    cross_host=False,
    fair=True,
    fencing=True,
    # A lock does not outlive the host: expiry is on the boot clock and the file is never fsynced. What a reboot left
    # in the file is waited out for one ttl. Tokens do go on growing, by the wall clock.
    survives_restart=False,
    survives_failover=False,
    needs_clocks="this host's boot clock (CLOCK_BOOTTIME); the wall clock only for the first token of a forgotten name",
    loss_bound="about a second after the lock file was removed or replaced; else none: holder and file share one "
    "clock, and a process frozen inside a transaction stalls others",
    shared=True,
    permits=True,
    registers=True,
    detach=True,
    state_bound="a monitor's state is synced to the disk, and a damaged file with such state is refused and kept; a "
    "removed file's state is lost; conditions, latches and barriers may be lost in a power cut",
)
_OLDEST: Final = (3, 24, 0)  # INSERT … ON CONFLICT DO UPDATE
_TOKEN_TTL: Final = 30 * 86400.0


class SqliteEngine:
    """One lock file."""

    scheme = "sqlite"
    guarantees = _GUARANTEES
    kinds = frozenset({Kind.LOCK, Kind.RWLOCK, Kind.SEMAPHORE})
    reserves_tokens = True
    strict_order = False
    replicates = False
    early_watch = False

    def __init__(self, path: str, *, token_ttl: float | None = _TOKEN_TTL) -> None:
        self.path = path
        self.token_ttl = token_ttl

    def validate_name(self, name: str) -> None:
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise InvalidName(f"lock name {name!r} is not text that UTF-8 can encode") from error

    def session(self, runtime: Runtime) -> SqliteSession:
        return SqliteSession(self.path, self.token_ttl, runtime)

    def keeper(self, runtime: Runtime) -> SqliteKeeper:
        return SqliteKeeper(self.path, self.token_ttl, runtime)

    def after_fork_in_child(self) -> None:
        """Nothing is left to do: hooks of :mod:`.stores` quiesce before each fork and drop everything in the child."""

    def __repr__(self) -> str:
        return f"<sqlite engine {self.path}>"


def connect(target: str | None, options: dict[str, Any]) -> SqliteEngine:
    """The engine for the lock file ``target`` (None: the default file of this user). Does no I/O on it."""
    if sqlite3.sqlite_version_info < _OLDEST:
        raise EngineRefused(f"the embedded engine needs SQLite 3.24 or later; this Python has {sqlite3.sqlite_version}")
    settings = dict(options)
    token_ttl = settings.pop("token_ttl", _TOKEN_TTL)
    for unknown in settings:
        near = difflib.get_close_matches(unknown, ["token_ttl"], 1)
        raise UsageError(
            f"the sqlite engine has no option {unknown!r}" + (f"; did you mean {near[0]!r}?" if near else "")
        )
    # Made absolute now: a relative path must not change its meaning when the program changes its directory.
    return SqliteEngine(default_path() if target is None else os.path.abspath(target), token_ttl=token_ttl)
