"""What a check asks of the database, and what the answers mean. Pure: the connection runs the requests."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias

from holdfast._config import names
from holdfast.errors import EngineRefused, InvalidName
from holdfast.fencing.rule import Bearer, Lease, admit, bearer, passed
from holdfast.fencing.sql.statements import Operation, Request, Values
from holdfast.fencing.sql.table import TableName

Row: TypeAlias = tuple[Any, ...]
#: Yields requests; receives the first row of each answer, or None if it has none.
Plan: TypeAlias = Generator[Request, Row | None, None]


def check(table: TableName, resource: str, token: int | Lease, owner: str | None) -> Plan:
    """Validates at once; the plan raises StaleToken if the database did not admit the token."""
    resource = _text(names.validate(resource, what="resource name"), "resource name")
    comer = bearer(token, owner, fence="SqlFence")
    stored = None if comer.owner is None else _text(comer.owner, "lease owner")
    return _check(table, resource, comer, stored)


def _check(table: TableName, resource: str, comer: Bearer, owner: str | None) -> Plan:
    values: Values = {"resource": resource, "token": comer.token, "owner": owner}
    if (yield Request(Operation.RAISE, table, values)) is not None:
        passed(resource, comer)
        return
    # The row is locked by the statement above, so this is what refused the token.
    row = yield Request(Operation.SEEN, table, {"resource": resource})
    if row is not None:
        admit(resource, Bearer(int(row[0]), row[1]), comer)
    raise EngineRefused(
        f"the token of {resource!r} could not be stored in the table {table}, although it is not stale: a trigger, a "
        "rule or a row policy of the database prevents it. Nothing was admitted"
    )


def create(table: TableName) -> Plan:
    yield Request(Operation.CREATE, table, {})


def _text(value: str, what: str) -> str:
    """A plain str that every database stores as it is.

    Applications register adapters for types of their own, such as an enumeration of strings: one process would then
    store another text than the next.
    """
    if "\0" in value:
        raise InvalidName(f"a {what} may not contain a NUL character: PostgreSQL cannot store it", name=value)
    return str.__str__(value)
