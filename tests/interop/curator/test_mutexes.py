"""Java's InterProcessMutex and Python's lock: exclusion, order, re-entry, tokens, names, foreign nodes, operators."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Final

import pytest

import holdfast
from tests.interop.curator import PEER as PEER
from tests.interop.curator import Java, path_of
from tests.interop.curator.turns import JavaTurn, PythonTurn, Turn, queued
from tests.servers.zookeeper import BASE, ZooKeeperServer
from tests.support.waiting import eventually

if not os.environ.get("INTEROP"):
    pytest.skip("INTEROP is not set", allow_module_level=True)

pytestmark = pytest.mark.timeout(400)  # the first run downloads the jars

MUTEX: Final = "InterProcessMutex"

#: Lock names, and the nodes at which a Java program finds them.
NAMES: Final = {
    "plain": "plain", "order:42": "order:42", "a/b": "a%2Fb", ".": "%2E", "..": "%2E%2E", "...": "...",
    "100%": "100%25", "%2F": "%252F", "two words": "two words", "tab\there": "tab%09here", "Zoë": "Zoë", "名前": "名前",
    "🔒": "%F0%9F%94%92", "{shop}": "{shop}", "lock-": "lock-", "x-lock-0000000000": "x-lock-0000000000", "_c_": "_c_",
    "a\\b": "a\\b", "?x=1#y": "?x=1#y", "\u00a0": "\u00a0", "/": "%2F", "a//b/": "a%2F%2Fb%2F", "x" * 255: "x" * 255,
    "locks": "locks", "leases": "leases", "ready": "ready", "%registers": "%25registers",
}  # fmt: skip


# ---- exclusion


@pytest.mark.interop(MUTEX, "exclusion")
@pytest.mark.interop(MUTEX, "tokens in the order of grants")
def test_each_waits_while_the_other_holds(java: Java, locks: holdfast.Client) -> None:
    path = path_of("stock")
    first = java.take("j", path)
    assert first is not None
    assert locks.lock("stock").try_acquire() is None
    (holder,) = locks.inspect("stock").holders
    assert first.node.endswith(holder.owner)
    assert (holder.token, holder.pid) == (first.token, None)
    java.release("j")
    with locks.lock("stock", timeout=5) as lease:
        assert lease.token > first.token
        assert java.take("j", path, timeout=0.2) is None
        assert len(java.participants(path)) == 1, "the contender that timed out left its node behind"
    last = java.take("j", path)
    assert last is not None
    assert last.token > lease.token
    java.release("j")


@pytest.mark.interop("InterProcessSemaphoreMutex", "exclusion")
def test_a_semaphore_of_one_permit_is_javas_semaphore_mutex(java: Java, locks: holdfast.Client) -> None:
    path, single = path_of("stock"), locks.semaphore("stock", 1)
    assert java.take("j", path, recipe="single") is not None
    assert single.try_acquire() is None
    java.release("j", "single")
    with single.acquire(timeout=5):
        assert java.take("j", path, recipe="single", timeout=0.2) is None
    assert java.take("j", path, recipe="single") is not None
    java.release("j", "single")


# ---- order and re-entry


@pytest.mark.interop(MUTEX, "order of grants")
@pytest.mark.interop(MUTEX, "tokens in the order of grants")
def test_both_share_one_queue(java: Java, locks: holdfast.Client) -> None:
    turns: list[Turn] = []
    for number, in_java in enumerate((1, 0, 1, 1, 0, 0, 1, 0)):
        if in_java:
            turns.append(JavaTurn(java, f"j{number}", path_of("queue")))
        else:
            turns.append(PythonTurn(lambda: locks.lock("queue").acquire(timeout=30)))
        queued(locks, "queue", number + 1)
    held, released = [], []
    for turn in turns:
        held.append(turn.held())  # waits forever if the order is wrong
        released.append(turn.release())
    for before, (at, _) in zip(released, held[1:], strict=False):
        assert at > before, "granted before the predecessor released"
    assert all(first < second for first, second in pairwise(token for _, token in held))
    queued(locks, "queue", 0)


@pytest.mark.interop(MUTEX, "re-entrancy")
def test_re_entered_locks_are_free_after_the_last_release(java: Java, locks: holdfast.Client) -> None:
    """Neither stores a count: it is the process that knows it."""
    path, lock = path_of("stock"), locks.lock("stock")
    tokens = {held.token for _ in range(3) if (held := java.take("j", path)) is not None}
    assert len(tokens) == 1
    for _ in range(3):
        assert lock.try_acquire() is None
        java.release("j")
    with lock.acquire(timeout=5) as outer:
        with lock as inner:
            assert inner.token == outer.token
            assert len(java.participants(path)) == 1
        assert java.take("j", path, timeout=0.2) is None
    assert java.take("j", path) is not None
    java.release("j")


# ---- operators


@pytest.mark.interop(MUTEX, "`break_` and forced deletion")
def test_break_takes_the_lock_from_java(java: Java, locks: holdfast.Client) -> None:
    path = path_of("stock")
    held = java.take("j", path)
    assert held is not None
    waiting = JavaTurn(java, "k", path)
    queued(locks, "stock", 2)
    assert not locks.break_("stock", token=held.token + 1)
    assert locks.break_("stock", token=held.token)
    _, token = waiting.held()
    assert token > held.token
    assert java.holds(path), "Curator does not notice; if it does, say so in share-with-curator.md"
    java.release("j")  # is quiet, and does not touch the node of the next holder
    assert locks.lock("stock").try_acquire() is None
    waiting.release()
    locks.lock("stock").acquire(timeout=5).release()


@pytest.mark.interop(MUTEX, "`break_` and forced deletion")
def test_python_reports_a_lock_whose_node_java_has_deleted(java: Java, locks: holdfast.Client) -> None:
    path = path_of("stock")
    lost: list[holdfast.Lease] = []
    lease = locks.lock("stock", on_lost=lost.append).acquire()
    waiting = PythonTurn(lambda: locks.lock("stock").acquire(timeout=30))
    queued(locks, "stock", 2)
    for node in java.participants(path)[:1]:
        java.delete(node)
    assert waiting.held()[1] > lease.token
    eventually(lambda: lease.lost)
    with pytest.raises(holdfast.LockLost):
        lease.check()
    eventually(lambda: lost == [lease])
    assert java.take("j", path, timeout=0.2) is None
    waiting.release()


def test_waiter_whose_node_java_deletes_joins_the_queue_again(java: Java, locks: holdfast.Client) -> None:
    path = path_of("stock")
    assert java.take("j", path) is not None
    waiting = PythonTurn(lambda: locks.lock("stock").acquire(timeout=30))
    queued(locks, "stock", 2)
    java.delete(java.participants(path)[1])
    assert waiting.waits
    java.release("j")
    waiting.held()
    assert java.take("j", path, timeout=0.2) is None
    waiting.release()


def test_revocation_request_is_ignored(java: Java, locks: holdfast.Client) -> None:
    with locks.lock("stock", ttl=1) as lease:
        (node,) = java.participants(path_of("stock"))
        java.revoke(node)
        lease.renew()
        lease.check()
        assert locks.inspect("stock").holders


# ---- names, and foreign nodes


@pytest.mark.interop(MUTEX, "awkward names")
@pytest.mark.parametrize("name, node", NAMES.items(), ids=lambda text: ascii(text)[:30])
def test_names_map_to_the_same_nodes(java: Java, locks: holdfast.Client, name: str, node: str) -> None:
    with locks.lock(name) as lease:
        assert [state.name for state in locks.locks()] == [name]
        assert java.take("j", path_of(node), timeout=0) is None
    held = java.take("j", path_of(node))
    assert held is not None
    assert held.token > lease.token
    assert locks.lock(name).try_acquire() is None
    java.release("j")


def test_namespace_and_chroot_are_part_of_the_path(java: Java, zookeeper_server: ZooKeeperServer) -> None:
    url = zookeeper_server.url.replace(BASE, f"{BASE}/eu/prod")
    with holdfast.connect(url, namespace="shop") as locks, locks.lock("a/b"):
        assert java.take("j", f"{BASE}/eu/prod/shop:a%2Fb", timeout=0) is None
        assert len(java.participants(f"{BASE}/eu/prod/shop:a%2Fb")) == 1


@pytest.mark.parametrize("child, blocks", [("-odd", True), ("zeta", False), ("_c_x", False), ("0", True)])
def test_foreign_children_are_treated_the_same_by_both(
    java: Java, locks: holdfast.Client, zookeeper_server: ZooKeeperServer, child: str, blocks: bool
) -> None:
    zookeeper_server.client().create(f"{path_of('stock')}/{child}", makepath=True)
    held = java.take("j", path_of("stock"), timeout=0.2)
    if held is not None:
        java.release("j")
    lease = locks.lock("stock").try_acquire(timeout=1)  # long enough to connect, and for an answer
    if lease is not None:
        lease.release()
    assert (held is None, lease is None) == (blocks, blocks)


@pytest.mark.interop("different recipes on one path", "Python refuses, Java does not", verdict="must not be mixed")
def test_python_refuses_a_path_that_java_uses_as_another_kind(java: Java, locks: holdfast.Client) -> None:
    path = path_of("stock")
    assert java.take("j", path) is not None
    with pytest.raises(holdfast.EngineRefused, match="in use as a lock, not as a rwlock"):
        locks.rwlock("stock").read.acquire(timeout=5)
    with pytest.raises(holdfast.EngineRefused, match="in use as a lock, not as a semaphore"):
        locks.semaphore("stock", 2).acquire(timeout=5)
    with pytest.raises(holdfast.EngineRefused, match="in use as a lock, not as an election"):
        locks.election("stock").campaign(timeout=5)
    java.release("j")
    assert java.take("w", path, recipe="write") is not None
    with pytest.raises(holdfast.EngineRefused, match="in use as a rwlock, not as a lock"):
        locks.lock("stock").acquire(timeout=5)
    java.release("w", "write")
