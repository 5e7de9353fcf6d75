"""Finds the adapter for a connection. No driver is imported here: if the caller has not imported it, the connection
cannot be one of its objects."""

from __future__ import annotations

import importlib
import sys
from typing import Any, Final, NamedTuple, Protocol

from holdfast.errors import UsageError
from holdfast.fencing.sql.plan import Plan


class Sync(Protocol):
    def perform(self, plan: Plan) -> None: ...


class Async(Protocol):
    async def perform(self, plan: Plan) -> None: ...


class _Kind(NamedTuple):
    """``type`` in ``module`` is served by ``adapter``, which is 'file:name' in this package."""

    module: str
    type: str
    adapter: str


_SYNC: Final = (
    _Kind("sqlite3", "Connection", "dbapi:SqliteDatabase"),
    _Kind("psycopg", "Connection", "dbapi:PsycopgDatabase"),
    _Kind("sqlalchemy.engine", "Connection", "sqlalchemy:ConnectionDatabase"),
    _Kind("sqlalchemy.orm", "Session", "sqlalchemy:session_database"),
    _Kind("sqlalchemy.orm", "scoped_session", "sqlalchemy:session_database"),
    _Kind("django.db.backends.base.base", "BaseDatabaseWrapper", "django:DjangoDatabase"),
    _Kind("django.utils.connection", "ConnectionProxy", "django:DjangoDatabase"),  # django.db.connection
)
_ASYNC: Final = (
    _Kind("psycopg", "AsyncConnection", "dbapi:AsyncPsycopgDatabase"),
    _Kind("aiosqlite", "Connection", "dbapi:AiosqliteDatabase"),
    _Kind("sqlalchemy.ext.asyncio", "AsyncConnection", "sqlalchemy:AsyncConnectionDatabase"),
    _Kind("sqlalchemy.ext.asyncio", "AsyncSession", "sqlalchemy:AsyncSessionDatabase"),
)


def sync_database(db: object, method: str) -> Sync:
    """The adapter for a blocking connection; ``method`` is the called method, for the error message."""
    found: Sync | None = _adapted(db, _SYNC)
    if found is not None:
        return found
    if any(_is(db, kind) for kind in _ASYNC):
        raise UsageError(f"{_shown(db)} is async: write 'await fence.{method}_async(...)'")
    raise _unknown(db)


def async_database(db: object, method: str) -> Async:
    """The adapter for an async connection; a blocking one would stall the event loop while it waits for a row."""
    found: Async | None = _adapted(db, _ASYNC)
    if found is not None:
        return found
    if any(_is(db, kind) for kind in _SYNC):
        raise UsageError(f"{_shown(db)} blocks, and would stall the event loop: write 'fence.{method}(...)' for it")
    raise _unknown(db)


def _adapted(db: object, kinds: tuple[_Kind, ...]) -> Any:
    for kind in kinds:
        if _is(db, kind):
            file, _, name = kind.adapter.partition(":")
            return getattr(importlib.import_module(f"holdfast.fencing.sql.{file}"), name)(db)
    return None


def _is(db: object, kind: _Kind) -> bool:
    known = getattr(sys.modules.get(kind.module), kind.type, None)
    return known is not None and isinstance(db, known)


def _shown(db: object) -> str:
    return f"{type(db).__module__}.{type(db).__qualname__}"


def _unknown(db: object) -> UsageError:
    return UsageError(
        f"SqlFence knows no {_shown(db)}. Pass an open connection of sqlite3, psycopg or aiosqlite, a Connection or "
        "Session of SQLAlchemy (sync or async), or using='alias' for Django"
    )
