"""The guarantees of SqlFence on every kind of connection, sync and async, on PostgreSQL and SQLite."""

from __future__ import annotations

import enum

import pytest

import holdfast
from holdfast.errors import EngineRefused, StaleToken
from holdfast.fencing import SqlFence
from holdfast.fencing.rule import LARGEST_TOKEN
from tests.fencing.sql.stores import Store

STORED = "SELECT resource, token, owner FROM holdfast_fence ORDER BY resource"


async def test_newer_token_is_admitted_and_older_token_refused(store: Store) -> None:
    async with store.begin() as work:
        await work.check("orders", 5, "a")
        await work.check("orders", LARGEST_TOKEN, "b")
    with pytest.raises(StaleToken) as refused:
        async with store.begin() as work:
            await work.check("orders", LARGEST_TOKEN - 1, "c")
    assert (refused.value.resource, refused.value.token, refused.value.seen) == (
        "orders", LARGEST_TOKEN - 1, LARGEST_TOKEN,
    )  # fmt: skip
    assert await store.run(STORED) == [("orders", LARGEST_TOKEN, "b")]


async def test_equal_token_is_admitted_only_for_the_same_owner(store: Store) -> None:
    async with store.begin() as work:
        await work.check("with owner", 7, "a")
        await work.check("with owner", 7, "a")
        await work.check("without", 7)
        await work.check("without", 7)
    for resource, owner in (("with owner", "b"), ("with owner", None), ("without", "a")):
        with pytest.raises(StaleToken) as refused:
            async with store.begin() as work:
                await work.check(resource, 7, owner)
        assert refused.value.seen == 7
    assert await store.run(STORED) == [("with owner", 7, "a"), ("without", 7, None)]


async def test_lease_is_judged_by_token_and_owner_whether_held_or_not(store: Store) -> None:
    with holdfast.connect("memory:sql") as locks:
        with locks.lock("orders") as first:
            pass
        async with store.begin() as work:
            await work.check("orders", first)  # released, but there is no newer holder
        with locks.lock("orders") as second:
            async with store.begin() as work:
                await work.check("orders", second)
    with pytest.raises(StaleToken) as refused:
        async with store.begin() as work:
            await work.check("orders", first)
    assert (refused.value.token, refused.value.seen) == (first.token, second.token)


async def test_rollback_undoes_the_check_and_commit_keeps_it(store: Store) -> None:
    async def fail() -> None:
        async with store.begin() as work:
            await work.check("orders", 9, "a")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert await store.run(STORED) == []
    async with store.begin() as work:
        await work.check("orders", 8, "b")
    assert await store.run(STORED) == [("orders", 8, "b")]


async def test_refused_check_leaves_earlier_writes_uncommitted(store: Store) -> None:
    async with store.begin() as work:
        await work.run("CREATE TABLE data (value INTEGER)")
    async with store.begin() as work:
        await work.check("orders", 2)

    async def write_and_check() -> None:
        async with store.begin() as work:
            await work.run("INSERT INTO data VALUES (1)")
            await work.check("orders", 1)

    with pytest.raises(StaleToken):
        await write_and_check()
    assert await store.run("SELECT * FROM data") == []


class _Resource(enum.StrEnum):
    ORDERS = "the value"


_NAMES = ["'; DROP TABLE holdfast_fence; --", "100 % %s %(token)s :token ?", 'a"b\\c', "Ωμέγα 🔒\n\t", _Resource.ORDERS]


async def test_names_are_never_interpreted_as_sql(store: Store) -> None:
    async with store.begin() as work:
        for name in _NAMES:
            await work.check(name, 1, name)
            await work.check(name, 1, str.__str__(name))
    texts = [str.__str__(name) for name in _NAMES]
    assert sorted(await store.run(STORED)) == sorted((text, 1, text) for text in texts)


async def test_missing_table_is_reported_with_a_remedy(empty_store: Store) -> None:
    with pytest.raises(EngineRefused, match=r"holdfast_fence does not exist.*SqlFence.ddl") as refused:
        async with empty_store.begin() as work:
            await work.check("orders", 1)
    assert refused.value.__cause__ is not None


async def test_table_with_other_columns_is_reported(empty_store: Store) -> None:
    await empty_store.run("CREATE TABLE no_columns (id INTEGER)")
    await empty_store.run("CREATE TABLE no_key (resource TEXT, token BIGINT, owner TEXT)")
    for table in ("no_columns", "no_key"):
        with pytest.raises(EngineRefused, match=rf"{table} is not a fence's table"):
            async with empty_store.begin() as work:
                await work.check("orders", 1, fence=SqlFence(table))


async def test_creating_the_table_twice_keeps_its_rows(store: Store) -> None:
    async with store.begin() as work:
        await work.check("orders", 3)
    async with store.begin() as work:
        await work.create()
    assert await store.run(STORED) == [("orders", 3, None)]
