"""The statements of a check, and the meaning of their results. Pure: the connection runs the requests."""

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
    """Validates immediately. The plan raises StaleToken if the database did not accept the token."""
    resource = _text(names.validate(resource, what="resource name"), "resource name")
    incoming = bearer(token, owner, fence="SqlFence")
    stored = None if incoming.owner is None else _text(incoming.owner, "lease owner")
    return _check(table, resource, incoming, stored)


def _check(table: TableName, resource: str, incoming: Bearer, owner: str | None) -> Plan:
    if incoming.reads:
        row = yield Request(Operation.COMPARE, table, {"resource": resource})
        admit(resource, None if row is None else Bearer(int(row[0]), row[1]), incoming)
        return
    values: Values = {"resource": resource, "token": incoming.token, "owner": owner}
    if (yield Request(Operation.RAISE, table, values)) is not None:
        passed(resource, incoming)
        return
    # The statement above has locked the row, so this reads the token that refused the incoming one.
    row = yield Request(Operation.SEEN, table, {"resource": resource})
    if row is not None:
        admit(resource, Bearer(int(row[0]), row[1]), incoming)
    raise EngineRefused(
        f"the token of {resource!r} could not be stored in the table {table}, although it is not stale: a trigger, a "
        "rule or a row policy of the database prevents it. The token was not accepted"
    )


def create(table: TableName) -> Plan:
    yield Request(Operation.CREATE, table, {})


def _text(value: str, what: str) -> str:
    """A plain str that every database stores unchanged.

    Applications may register adapters for types of their own, such as an enumeration of strings: then one process could
    store another text than the next.
    """
    if "\0" in value:
        raise InvalidName(f"a {what} may not contain a NUL character: PostgreSQL cannot store it", name=value)
    return str.__str__(value)
