"""The embedded engine: one SQLite file, any number of processes of one user on one host."""

from __future__ import annotations

from holdfast.errors import UsageError

try:
    import sqlite3 as _sqlite3  # noqa: F401  (a Python may be built without it)
except ImportError as missing:
    raise UsageError(
        "the embedded engine needs Python's sqlite3 module, which this Python was built without; install a Python "
        "that has it, or name a lock server: connect('redis://…')"
    ) from missing

from holdfast.engines.sqlite.engine import SqliteEngine, connect
from holdfast.engines.sqlite.paths import default_path

__all__ = ["SqliteEngine", "connect", "default_path"]
