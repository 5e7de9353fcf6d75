"""What a check needs of a connection, sync or async, and the database's errors that have a remedy."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

from holdfast.errors import EngineRefused, UsageError
from holdfast.fencing.sql.plan import Plan, Row
from holdfast.fencing.sql.statements import Dialect, Request, Style
from holdfast.fencing.sql.table import TableName

_NO_TABLE: Final = "42P01"
# Undefined column; no unique constraint for ON CONFLICT.
_OTHER_TABLE: Final = frozenset({"42703", "42P10"})
_SQLITE_NO_TABLE: Final = "no such table"
_SQLITE_OTHER_TABLE: Final = ("has no column named", "no such column", "ON CONFLICT clause does not match")


class Database(abc.ABC):
    """The adapter of a user's connection. A new one is made for each check."""

    dialect: Dialect
    style: Style

    @abc.abstractmethod
    def require_transaction(self) -> None:
        """UsageError unless the next INSERT is part of a transaction that outlives it."""

    def text(self, request: Request) -> str:
        return request.text(self.dialect, self.style)


class SyncDatabase(Database):
    """A connection whose calls block."""

    @abc.abstractmethod
    def execute(self, request: Request) -> Row | None:
        """Run one statement to its end, and return its first row."""

    def perform(self, plan: Plan) -> None:
        with closing(plan):
            request = next(plan, None)
            while request is not None:
                if request.locks:
                    self.require_transaction()
                with explained(request.table, self.dialect):
                    row = self.execute(request)
                request = _following(plan, row)


class AsyncDatabase(Database):
    """A connection whose calls are awaited."""

    @abc.abstractmethod
    async def execute(self, request: Request) -> Row | None:
        """Run one statement to its end, and return its first row."""

    async def perform(self, plan: Plan) -> None:
        with closing(plan):
            request = next(plan, None)
            while request is not None:
                if request.locks:
                    self.require_transaction()
                with explained(request.table, self.dialect):
                    row = await self.execute(request)
                request = _following(plan, row)


def _following(plan: Plan, row: Row | None) -> Request | None:
    try:
        return plan.send(row)
    except StopIteration:
        return None


def no_transaction(what: str) -> UsageError:
    return UsageError(
        f"{what}: the row lock would end with the check itself, and the writes after it would not be fenced. "
        "Check and write in one transaction"
    )


@contextmanager
def explained(table: TableName, dialect: Dialect) -> Iterator[None]:
    """Report a missing or unsuitable table with its remedy. Other errors of the driver pass unchanged."""
    try:
        yield
    except Exception as error:
        problem = _problem(error, dialect)
        if problem is None:
            raise
        raise EngineRefused(
            f"the table {table} {problem}; create it once with SqlFence.ddl({dialect!r}), SqlFence.create() or a "
            "migration, or name another table"
        ) from error


def _problem(error: BaseException, dialect: Dialect) -> str | None:
    # SQLAlchemy and Django raise errors of their own around the driver's. The text of the outer one may contain the
    # statement's parameters, so it must not be searched.
    driver = getattr(error, "orig", None) or error.__cause__ or error
    state = getattr(driver, "sqlstate", None)
    text = str(driver) if dialect == "sqlite" else ""
    if state == _NO_TABLE or _SQLITE_NO_TABLE in text:
        return "does not exist in this database"
    if state in _OTHER_TABLE or any(words in text for words in _SQLITE_OTHER_TABLE):
        return "is not a fence's table"
    return None
