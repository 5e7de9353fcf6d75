"""Every SQL text of the fence: one row for each resource, with the newest token and its owner.

The only external text in a statement is the validated name of the table; values are always bound.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from holdfast.errors import UsageError
from holdfast.fencing.sql.table import TableName

Dialect = Literal["postgresql", "sqlite"]
#: How a driver spells placeholders: ``:name`` or ``%(name)s``.
Style = Literal["named", "pyformat"]
Values: TypeAlias = Mapping[str, str | int | None]

_PLACEHOLDER: Final[Mapping[Style, str]] = {"named": ":{}", "pyformat": "%({})s"}
# NULL equals NULL here, as None equals None in the rule of all fences.
_SAME: Final[Mapping[Dialect, str]] = {"postgresql": "IS NOT DISTINCT FROM", "sqlite": "IS"}
# PostgreSQL: bytes are compared, not letters of a locale. An index that was sorted by an older version of the operating
# system's locale may miss the row, and the check would insert a second one.
_KEY: Final[Mapping[Dialect, str]] = {"postgresql": 'text COLLATE "C"', "sqlite": "TEXT"}


class Operation(enum.Enum):
    """The kinds of statements."""

    #: Store the token if the rule accepts it, and lock the row until the transaction ends. No row: not accepted.
    RAISE = enum.auto()
    #: Lock the row until the transaction ends, and read what is stored: for a reader, which stores nothing.
    COMPARE = enum.auto()
    #: Read what is stored.
    SEEN = enum.auto()
    #: Create the table if it does not exist.
    CREATE = enum.auto()


class Request(NamedTuple):
    """One statement to run, before dialect and placeholder style are known."""

    operation: Operation
    table: TableName
    values: Values

    @property
    def returns_rows(self) -> bool:
        return self.operation is not Operation.CREATE

    @property
    def locks(self) -> bool:
        """Whether it has to be part of a transaction that outlives it."""
        return self.operation in (Operation.RAISE, Operation.COMPARE)

    def text(self, dialect: Dialect, style: Style) -> str:
        return _text(self.operation, self.table, dialect, style)


def dialect_of(name: str) -> Dialect:
    """The dialect of that name; UsageError for a database whose statements are not known."""
    for dialect in get_args(Dialect):
        if name == dialect:
            return dialect  # type: ignore[no-any-return]
    raise UsageError(f"SqlFence supports {' and '.join(get_args(Dialect))}, not {name!r}")


@functools.cache
def _text(operation: Operation, table: TableName, dialect: Dialect, style: Style) -> str:
    match operation:
        case Operation.RAISE:
            return _raise(table, dialect, style)
        case Operation.COMPARE:
            return _compare(table, dialect, style)
        case Operation.SEEN:
            resource = _PLACEHOLDER[style].format("resource")
            return f"SELECT token, owner FROM {table.quoted} WHERE resource = {resource}"  # noqa: S608 - validated name
        case Operation.CREATE:
            return create_table(table, dialect)


def _raise(table: TableName, dialect: Dialect, style: Style) -> str:
    """The check and the lock in one statement.

    PostgreSQL locks the conflicting row, waits for a transaction that has it, and evaluates the condition on what that
    transaction committed. The row stays locked whether or not the condition holds. SQLite has one writer at a time.
    """
    columns = ("resource", "token", "owner")
    values = ", ".join(_PLACEHOLDER[style].format(column) for column in columns)
    # It begins with INSERT: Python's sqlite3 opens a transaction only for statements that do.
    return (
        f"INSERT INTO {table.quoted} AS fence ({', '.join(columns)}) VALUES ({values}) "  # noqa: S608 - validated name
        "ON CONFLICT (resource) DO UPDATE SET token = excluded.token, owner = excluded.owner "
        "WHERE fence.token < excluded.token "
        f"OR (fence.token = excluded.token AND fence.owner {_SAME[dialect]} excluded.owner) "
        "RETURNING token, owner"
    )


def _compare(table: TableName, dialect: Dialect, style: Style) -> str:
    """In PostgreSQL readers share the lock, and exclude a check that stores. In SQLite it must be a statement that
    writes: only that makes Python open a transaction, and keeps others from storing until it ends."""
    row = f"WHERE resource = {_PLACEHOLDER[style].format('resource')}"
    if dialect == "postgresql":
        return f"SELECT token, owner FROM {table.quoted} {row} FOR SHARE"  # noqa: S608 - validated name
    return f"UPDATE {table.quoted} SET token = token {row} RETURNING token, owner"  # noqa: S608 - validated name


def create_table(table: TableName, dialect: Dialect) -> str:
    """One row for each resource. SQLite's INTEGER has 64 bits, as bigint has."""
    number, text = ("bigint", "text") if dialect == "postgresql" else ("INTEGER", "TEXT")
    return (
        f"CREATE TABLE IF NOT EXISTS {table.quoted} (\n"
        f"    resource {_KEY[dialect]} NOT NULL PRIMARY KEY,\n"
        f"    token {number} NOT NULL,\n"
        f"    owner {text}\n"
        ")"
    )
