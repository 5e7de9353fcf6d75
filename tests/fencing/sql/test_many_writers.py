"""Many writers with rising tokens and no lock before the fence lose no acknowledged update."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.errors import StaleToken
from tests.fencing.sql.stores import Store

WRITERS = 4
UPDATES = 30


async def _update(store: Store, owner: str) -> int:
    """Returns the number of acknowledged updates of this writer."""
    acknowledged = 0
    for _ in range(UPDATES):
        token = time.monotonic_ns()  # a clock shared by all writers
        try:
            async with store.begin() as work:
                await work.check("register", token, owner)
                ((value,),) = await work.run("SELECT value FROM register")
                await work.run(f"INSERT INTO log VALUES ({value + 1}, {token})")
                await work.run(f"UPDATE register SET value = {value + 1}")
            acknowledged += 1
        except StaleToken:
            pass  # a newer token was admitted meanwhile
    return acknowledged


@pytest.mark.parametrize("database", [pytest.param("postgres_store", marks=pytest.mark.needs_postgres), "sqlite_store"])
def test_acknowledged_updates_are_kept_and_tokens_only_rise(database: str, request: pytest.FixtureRequest) -> None:
    store: Store = request.getfixturevalue(database)
    for statement in (
        "CREATE TABLE register (value INTEGER)",
        "INSERT INTO register VALUES (0)",
        "CREATE TABLE log (position INTEGER, token BIGINT)",
    ):
        asyncio.run(store.run(statement))
    together = threading.Barrier(WRITERS)

    def write(number: int) -> int:
        together.wait(30)
        return asyncio.run(_update(store, f"writer {number}"))

    with ThreadPoolExecutor(WRITERS) as pool:
        acknowledged = sum(pool.map(write, range(WRITERS)))
    assert acknowledged > 0
    assert asyncio.run(store.run("SELECT value FROM register")) == [(acknowledged,)]
    tokens = [token for (token,) in asyncio.run(store.run("SELECT token FROM log ORDER BY position"))]
    assert len(tokens) == acknowledged
    assert all(earlier < later for earlier, later in itertools.pairwise(tokens))
