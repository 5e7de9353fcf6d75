"""The name of the fence's table: validated, so that it may stand in the text of a statement."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.errors import UsageError

if TYPE_CHECKING:
    import sqlalchemy

# 63 bytes: PostgreSQL cuts longer identifiers without an error, and two fences could share one table.
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


class TableName(NamedTuple):
    """A table, perhaps with its schema; each part is a plain identifier."""

    schema: str | None
    name: str

    @classmethod
    def parse(cls, text: object) -> TableName:
        """``table`` or ``schema.table``; UsageError for anything but letters, digits and underscores."""
        parts = text.split(".") if isinstance(text, str) else []
        if not 1 <= len(parts) <= 2 or not all(_IDENTIFIER.fullmatch(part) for part in parts):
            raise UsageError(
                f"a fence's table is 'table' or 'schema.table', each of at most 63 ASCII letters, digits and "
                f"underscores and not beginning with a digit; not {text!r}"
            )
        return cls(parts[0] if len(parts) == 2 else None, parts[-1])

    @property
    def quoted(self) -> str:
        """Quoted: the same table for every tool, whatever its case, and keywords are possible names."""
        return ".".join(f'"{part}"' for part in self if part is not None)

    def __str__(self) -> str:
        return ".".join(part for part in self if part is not None)

    def described(self, metadata: sqlalchemy.MetaData) -> sqlalchemy.Table:
        """The table in ``metadata``, column for column what ``create_table`` creates; the same one each time."""
        from sqlalchemy import BigInteger, Column, Integer, Table, Text
        from sqlalchemy.dialects import postgresql

        key = str(self)
        if (known := metadata.tables.get(key)) is not None:
            return known
        return Table(
            self.name,
            metadata,
            Column("resource", Text().with_variant(postgresql.TEXT(collation="C"), "postgresql"), primary_key=True),
            Column("token", BigInteger().with_variant(Integer(), "sqlite"), nullable=False, autoincrement=False),
            Column("owner", Text(), nullable=True),
            schema=self.schema,
        )
