"""Java's InterProcessReadWriteLock and Python's rwlock: sharing, order, downgrades, tokens."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

import holdfast
from tests.interop.curator import PEER, Java, Recipe, path_of
from tests.interop.curator.turns import JavaTurn, PythonTurn, queued
from tests.servers.zookeeper import ZooKeeperServer
from tests.support.waiting import eventually

if not os.environ.get("INTEROP"):
    pytest.skip("INTEROP is not set", allow_module_level=True)

pytestmark = pytest.mark.timeout(400)  # the first run downloads the jars

RW: Final = "InterProcessReadWriteLock"
#: Before 5.5 a downgrade in Java lets waiting writers in.
LETS_WRITERS_IN: Final = [int(part) for part in PEER[1].split(".")] < [5, 5]
NAMES: Final = {"{shop}:cart": "{shop}:cart", "a/b": "a%2Fb", "名前": "名前", "__WRIT__": "__WRIT__"}


@pytest.mark.interop(RW, "exclusion")
def test_readers_of_both_languages_hold_together_and_exclude_writers_of_both(
    java: Java, locks: holdfast.Client
) -> None:
    path, rwlock = path_of("table"), locks.rwlock("table")
    with rwlock.read:
        assert java.take("j", path, recipe="read") is not None
        assert java.take("w", path, recipe="write", timeout=0.2) is None
        assert [holder.mode for holder in locks.inspect("table").holders] == ["read", "read"]
    assert rwlock.write.try_acquire() is None
    java.release("j", "read")
    with rwlock.write.acquire(timeout=5):
        for recipe in ("read", "write"):
            assert java.take("j", path, recipe=recipe, timeout=0.2) is None
    assert java.take("w", path, recipe="write") is not None
    assert rwlock.read.try_acquire() is None
    assert rwlock.write.try_acquire() is None
    java.release("w", "write")


@pytest.mark.interop(RW, "order of grants")
def test_readers_of_one_language_do_not_pass_a_waiting_writer_of_the_other(java: Java, locks: holdfast.Client) -> None:
    path, rwlock = path_of("table"), locks.rwlock("table")
    reading = rwlock.read.acquire()
    writing = JavaTurn(java, "w", path, "write")
    queued(locks, "table", 2)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(rwlock.read.try_acquire).result(10) is None
    reading.release()
    writing.held()
    waiting = PythonTurn(lambda: rwlock.write.acquire(timeout=30))
    queued(locks, "table", 2)
    assert java.take("j", path, recipe="read", timeout=0.2) is None
    writing.release()
    waiting.held()
    waiting.release()


@pytest.mark.interop(RW, "order of grants")
@pytest.mark.interop(RW, "tokens in the order of grants")
def test_readers_and_writers_of_both_languages_take_turns_in_one_queue(java: Java, locks: holdfast.Client) -> None:
    """The queue: writer, two readers (of each language), writer, writer."""
    path, rwlock = path_of("table"), locks.rwlock("table")
    first = JavaTurn(java, "w1", path, "write")
    queued(locks, "table", 1)
    reader = PythonTurn(lambda: rwlock.read.acquire(timeout=30))
    queued(locks, "table", 2)
    java.acquire("r", path, recipe="read")
    queued(locks, "table", 3)
    second = PythonTurn(lambda: rwlock.write.acquire(timeout=30))
    queued(locks, "table", 4)
    third = JavaTurn(java, "w2", path, "write")
    queued(locks, "table", 5)
    tokens = [first.held()[1]]
    assert reader.waits
    first.release()
    tokens.append(reader.held()[1])
    assert java.held("r") is not None, "together with the other reader"
    reader.release()
    assert second.waits
    java.release("r", "read")
    for turn in (second, third):
        tokens.append(turn.held()[1])
        turn.release()
    assert tokens == sorted(set(tokens))


@pytest.mark.interop(RW, "downgrade of a write", direction="Python to Java")
def test_downgrade_of_python_lets_no_waiting_writer_of_java_in(java: Java, locks: holdfast.Client) -> None:
    path, rwlock = path_of("table"), locks.rwlock("table")
    writing = rwlock.write.acquire()
    java.acquire("w", path, recipe="write")
    queued(locks, "table", 2)
    reading = rwlock.read.acquire(timeout=5)
    assert reading.token == writing.token
    writing.release()
    assert java.take("j", path, recipe="read", timeout=0.3) is None, "behind the writer, which still waits"
    assert [holder.mode for holder in locks.inspect("table").holders] == ["read"]
    reading.release()
    held = java.held("w")
    assert held is not None
    assert held.token > writing.token
    java.release("w", "write")


@pytest.mark.interop(RW, "downgrade of a write", direction="Java to Python")
def test_downgrade_of_java_lets_no_waiting_writer_of_python_in(java: Java, locks: holdfast.Client) -> None:
    path, rwlock = path_of("table"), locks.rwlock("table")
    writing = java.take("w", path, recipe="write")
    assert writing is not None
    waiting = PythonTurn(lambda: rwlock.write.acquire(timeout=30))
    queued(locks, "table", 2)
    assert java.take("w", path, recipe="read") is not None
    queued(locks, "table", 3)
    java.release("w", "write")
    queued(locks, "table", 2)
    if LETS_WRITERS_IN:
        waiting.held()
        waiting.release()
        java.release("w", "read")
        return
    assert waiting.waits
    assert [holder.mode for holder in locks.inspect("table").holders] == ["read"]
    assert rwlock.read.try_acquire() is None, "behind the writer, which still waits"
    java.release("w", "read")
    assert waiting.held()[1] > writing.token
    waiting.release()


@pytest.mark.interop(RW, "re-entrancy")
@pytest.mark.parametrize("recipe", ["read", "write"])
def test_re_entered_sides_are_free_after_the_last_release(java: Java, locks: holdfast.Client, recipe: Recipe) -> None:
    path, rwlock = path_of("table"), locks.rwlock("table")
    ours = rwlock.read if recipe == "read" else rwlock.write
    for _ in range(2):
        assert java.take("j", path, recipe=recipe) is not None
    for _ in range(2):
        assert rwlock.write.try_acquire() is None
        java.release("j", recipe)
    with ours.acquire(timeout=5):
        with ours:
            assert len(locks.inspect("table").holders) == 1
        assert java.take("w", path, recipe="write", timeout=0.2) is None
    assert java.take("w", path, recipe="write") is not None
    java.release("w", "write")


@pytest.mark.interop(RW, "`break_` and forced deletion")
def test_broken_and_deleted_holds_let_the_other_side_in(
    java: Java, locks: holdfast.Client, zookeeper_server: ZooKeeperServer
) -> None:
    path, rwlock, zookeeper = path_of("table"), locks.rwlock("table"), zookeeper_server.client()
    written = java.take("w", path, recipe="write")
    assert written is not None
    assert locks.break_("table", token=written.token)
    lease = rwlock.write.acquire(timeout=5)
    java.release("w", "write")  # is quiet, and does not touch the node of the next holder
    assert java.take("j", path, recipe="read", timeout=0.2) is None
    lease.release()
    reading = rwlock.read.acquire(timeout=5)
    assert java.take("j", path, recipe="read") is not None
    waiting = JavaTurn(java, "w", path, "write")
    queued(locks, "table", 3)
    (node,) = [node for node in java.participants(path) if zookeeper.exists(node).czxid == reading.token]
    java.delete(node)
    eventually(lambda: reading.lost)
    java.release("j", "read")
    waiting.held()
    waiting.release()


@pytest.mark.interop(RW, "awkward names")
@pytest.mark.parametrize("name, node", NAMES.items(), ids=map(ascii, NAMES))
def test_names_map_to_the_same_nodes(java: Java, locks: holdfast.Client, name: str, node: str) -> None:
    path, rwlock = path_of(node), locks.rwlock(name)
    with rwlock.write:
        assert java.take("j", path, recipe="read", timeout=0) is None
    assert java.take("j", path, recipe="read") is not None
    assert rwlock.write.try_acquire() is None
    rwlock.read.acquire(timeout=5).release()
    java.release("j", "read")
