"""Django's database connections, by their alias or as they are."""

from __future__ import annotations

from typing import Any

from holdfast.errors import UsageError
from holdfast.fencing.sql.database import SyncDatabase
from holdfast.fencing.sql.plan import Row
from holdfast.fencing.sql.statements import Request, dialect_of


class DjangoDatabase(SyncDatabase):
    """One of Django's connections, whatever driver is below it."""

    style = "pyformat"

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.dialect = dialect_of(connection.vendor)

    def require_transaction(self) -> None:
        # Only atomic() counts. With autocommit switched off by hand Django leaves the transaction to the caller, and
        # its own documentation advises against it.
        if not self._connection.in_atomic_block:
            raise UsageError(
                f"fence.check on the database {self._connection.alias!r} outside of transaction.atomic(): the row lock "
                "would end with the check itself. Check and write in one atomic() block"
            )

    def execute(self, request: Request) -> Row | None:
        with self._connection.cursor() as cursor:
            # Without parameters Django leaves a text as it is.
            cursor.execute(self.text(request), dict(request.values) or None)
            rows = cursor.fetchall() if request.returns_rows else []
        return rows[0] if rows else None


def aliased(using: str) -> DjangoDatabase:
    """The connection that Django's settings call ``using``, of this thread."""
    from django.db import connections  # type: ignore[import-untyped]

    return DjangoDatabase(connections[using])
