"""The SQL statement decides like the rule of all fences, on both databases."""

from __future__ import annotations

import itertools
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import StaleToken
from holdfast.fencing import SqlFence
from holdfast.fencing.rule import Bearer, admit
from tests.fencing.sql.stores import Store
from tests.servers.postgres import PostgresServer

_BEARERS = st.builds(Bearer, st.integers(0, 3) | st.integers(2**63 - 3, 2**63 - 1), st.sampled_from([None, "a", "b"]))


def _by_the_rule(seen: Bearer | None, incoming: Bearer) -> tuple[bool, Bearer]:
    """Returns whether the bearer is admitted, and the bearer stored afterwards."""
    try:
        return True, incoming if admit("r", seen, incoming) else seen or incoming
    except StaleToken:
        assert seen is not None
        return False, seen


def _by_the_database(db: Any, incoming: Bearer) -> tuple[bool, Bearer]:
    try:
        SqlFence().check(db, "r", *incoming)
        admitted = True
    except StaleToken:
        admitted = False
    return admitted, Bearer(*db.execute("SELECT token, owner FROM holdfast_fence WHERE resource = 'r'").fetchone())


@given(st.lists(_BEARERS, min_size=1, max_size=12))
def test_sqlite_agrees_with_the_rule(comers: list[Bearer]) -> None:
    seen: Bearer | None = None
    with closing(sqlite3.connect(":memory:")) as db:
        SqlFence().create(db)
        for incoming in comers:
            expected = _by_the_rule(seen, incoming)
            assert _by_the_database(db, incoming) == expected
            seen = expected[1]


def test_postgresql_agrees_with_the_rule_for_every_pair(postgres_server: PostgresServer, postgres_store: Store) -> None:
    bearers = [Bearer(token, owner) for token in (0, 1, 2**63 - 1) for owner in (None, "a", "b")]
    with postgres_server.connect() as db:
        for first, second in itertools.product(bearers, repeat=2):
            assert _by_the_database(db, first) == (True, first)
            assert _by_the_database(db, second) == _by_the_rule(first, second)
            db.rollback()


@pytest.mark.parametrize("owner", [None, "a"])
def test_refusal_names_the_stored_token(sqlite_store: Store, owner: str | None) -> None:
    with closing(sqlite3.connect(sqlite_store.place)) as db:
        SqlFence().check(db, "r", 5, owner)
        with pytest.raises(StaleToken, match="token 4 is older than 5"):
            SqlFence().check(db, "r", 4, owner)
        with pytest.raises(StaleToken, match="of another owner"):
            SqlFence().check(db, "r", 5, "b")
