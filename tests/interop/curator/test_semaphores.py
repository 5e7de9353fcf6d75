"""Java's InterProcessSemaphoreV2 and Python's semaphore: counting, order, size, several permits at once."""

from __future__ import annotations

import os
from typing import Final

import pytest

import holdfast
from tests.interop.curator import PEER as PEER
from tests.interop.curator import Java, path_of
from tests.interop.curator.turns import JavaTurn, PythonTurn, Turn
from tests.servers.zookeeper import ZooKeeperServer
from tests.support.waiting import eventually

if not os.environ.get("INTEROP"):
    pytest.skip("INTEROP is not set", allow_module_level=True)

pytestmark = pytest.mark.timeout(400)  # the first run downloads the jars

SEMAPHORE: Final = "InterProcessSemaphoreV2"
NAMES: Final = {"{shop}:cart": "{shop}:cart", "a/b": "a%2Fb", "名前": "名前", "🔒": "%F0%9F%94%92", "lease-": "lease-"}


@pytest.mark.interop(SEMAPHORE, "exclusion")
def test_permits_of_both_languages_are_counted_together(java: Java, locks: holdfast.Client) -> None:
    path, semaphore = path_of("slots"), locks.semaphore("slots", 3)
    with semaphore.acquire(2):
        assert java.take("j", path, recipe="permits") is not None, "Java reads the size that Python has stored"
        assert java.take("k", path, recipe="permits", size=3, timeout=0.2) is None
        assert semaphore.try_acquire() is None
        state = locks.inspect("slots")
        assert (state.size, state.free, len(state.holders)) == (3, 0, 2)
    assert semaphore.try_acquire(3) is None
    java.release("j", "permits")
    semaphore.acquire(3, timeout=5).release()


@pytest.mark.interop(SEMAPHORE, "order of grants")
@pytest.mark.interop(SEMAPHORE, "tokens in the order of grants")
def test_both_share_one_queue(java: Java, locks: holdfast.Client) -> None:
    path, semaphore = path_of("slots"), locks.semaphore("slots", 1)
    turns: list[Turn] = [PythonTurn(lambda: semaphore.acquire(timeout=30))]
    tokens = [turns[0].held()[1]]
    for number, in_java in enumerate((1, 0, 0, 1, 1), 1):
        if in_java:
            turns.append(JavaTurn(java, f"j{number}", path, "permits", size=1))
        else:
            turns.append(PythonTurn(lambda: semaphore.acquire(timeout=30)))
        eventually(lambda: len(java.participants(f"{path}/locks")) == number, within=20.0)  # noqa: B023
    turns.pop(0).release()
    for turn in turns:
        tokens.append(turn.held()[1])  # waits forever if the order is wrong
        turn.release()
    eventually(lambda: not locks.inspect("slots").holders)
    assert tokens == sorted(set(tokens))


@pytest.mark.interop(SEMAPHORE, "several permits at once")
def test_waiter_for_several_permits_is_granted_when_java_returns_one(java: Java, locks: holdfast.Client) -> None:
    path, semaphore = path_of("slots"), locks.semaphore("slots", 2)
    held = semaphore.acquire(2)
    java.acquire("j", path, recipe="permits", size=2)
    eventually(lambda: java.sleeps("j"))
    waiting = PythonTurn(lambda: semaphore.acquire(2, timeout=30))
    eventually(lambda: len(java.participants(f"{path}/locks")) == 2)
    held.release()
    assert java.held("j") is not None
    assert waiting.waits
    java.release("j", "permits")
    waiting.held()
    waiting.release()


@pytest.mark.interop(SEMAPHORE, "several permits at once")
def test_java_takes_several_permits_beside_python(java: Java, locks: holdfast.Client) -> None:
    path, semaphore = path_of("slots"), locks.semaphore("slots", 4)
    with semaphore.acquire():
        java.acquire("j", path, recipe="permits", count=3, timeout=20)
        assert java.held("j") is not None
        state = locks.inspect("slots")
        assert (state.free, sum(holder.count or 0 for holder in state.holders)) == (0, 4)
        java.release("j", "permits")
        java.acquire("j", path, recipe="permits", count=4, timeout=0.3)
        assert java.held("j") is None
        assert locks.inspect("slots").free == 3, "Java has returned those that it had"


@pytest.mark.interop(SEMAPHORE, "size in `permits` (SharedCount)")
def test_size_is_one_number_for_both(java: Java, locks: holdfast.Client) -> None:
    path, semaphore = path_of("slots"), locks.semaphore("slots", 1)
    first = semaphore.acquire()
    java.acquire("j", path, recipe="permits")
    eventually(lambda: java.sleeps("j"))
    semaphore.resize(2)
    assert java.held("j") is not None, "woken by the new number"
    waiting = PythonTurn(lambda: semaphore.acquire(timeout=30))
    eventually(lambda: locks.inspect("slots").waiters == 1)
    java.resize(path, 3)
    waiting.held()
    assert locks.inspect("slots").size == 3
    java.resize(path, 1)
    waiting.release()
    java.release("j", "permits")
    assert semaphore.try_acquire() is None
    first.release()
    semaphore.acquire(timeout=5).release()


@pytest.mark.interop(SEMAPHORE, "`break_` and forced deletion")
def test_broken_and_deleted_permits_are_free(
    java: Java, locks: holdfast.Client, zookeeper_server: ZooKeeperServer
) -> None:
    path, semaphore = path_of("slots"), locks.semaphore("slots", 1)
    held = java.take("j", path, recipe="permits")
    assert held is not None
    assert [holder.token for holder in locks.inspect("slots").holders] == [held.token]
    assert locks.break_("slots", token=held.token)
    lease = semaphore.acquire(timeout=5)
    assert lease.token > held.token
    java.release("j", "permits")  # is quiet
    waiting = JavaTurn(java, "k", path, "permits")
    eventually(lambda: java.sleeps("k"))
    zookeeper = zookeeper_server.client()
    (node,) = [
        node
        for node in java.participants(f"{path}/leases")
        if (stat := zookeeper.exists(node)) is not None and stat.czxid == lease.token
    ]
    java.delete(node)
    waiting.held()
    eventually(lambda: lease.lost)
    waiting.release()


@pytest.mark.interop(SEMAPHORE, "awkward names")
@pytest.mark.parametrize("name, node", NAMES.items(), ids=map(ascii, NAMES))
def test_names_map_to_the_same_nodes(java: Java, locks: holdfast.Client, name: str, node: str) -> None:
    path, semaphore = path_of(node), locks.semaphore(name, 1)
    with semaphore:
        assert java.take("j", path, recipe="permits", timeout=0) is None
    assert java.take("j", path, recipe="permits") is not None
    assert semaphore.try_acquire() is None
    java.release("j", "permits")
