"""The embedded engine: one SQLite file, any number of processes of one user on one host."""

from __future__ import annotations

from holdfast.engines.sqlite.engine import SqliteEngine, connect
from holdfast.engines.sqlite.paths import default_path

__all__ = ["SqliteEngine", "connect", "default_path"]
