"""Java programs with the real Curator on the same locks: exclusion, order, wake-ups, deaths, names.

Needs a JDK and Maven, which fetches Curator: ``make interop``.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

import holdfast
from tests.interop.java import CURATOR, Java, classpath
from tests.servers.zookeeper import BASE, ZooKeeperServer
from tests.support.child import Child
from tests.support.waiting import eventually

if not os.environ.get("INTEROP"):
    pytest.skip("INTEROP is not set", allow_module_level=True)

pytestmark = pytest.mark.timeout(400)  # the first run downloads the jars

#: Without a wake-up a waiter would poll after 5 s (Python) or never (Java).
WOKEN_WITHIN: Final = 1.0
SHORT: Final = 2.0

#: Lock names, and the nodes at which a Java program finds them.
NAMES: Final = {
    "plain": "plain", "order:42": "order:42", "a/b": "a%2Fb", ".": "%2E", "..": "%2E%2E", "...": "...",
    "100%": "100%25", "%2F": "%252F", "two words": "two words", "tab\there": "tab%09here", "Zoë": "Zoë", "名前": "名前",
    "🔒": "%F0%9F%94%92", "{shop}": "{shop}", "lock-": "lock-", "x-lock-0000000000": "x-lock-0000000000", "_c_": "_c_",
    "a\\b": "a\\b", "?x=1#y": "?x=1#y", "\u00a0": "\u00a0",
}  # fmt: skip


def path_of(node: str) -> str:
    return f"{BASE}/{node}"


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> str:
    return classpath(tmp_path_factory.mktemp("maven"))


@pytest.fixture(scope="module")
def _shared_java(jars: str, _shared_zookeeper: ZooKeeperServer) -> Iterator[Java]:
    with Java(jars, _shared_zookeeper.address) as java:
        yield java


@pytest.fixture
def java(_shared_java: Java, zookeeper_server: ZooKeeperServer) -> Java:
    """One process shared by all tests; each test releases its locks."""
    return _shared_java


@pytest.fixture
def locks(zookeeper_server: ZooKeeperServer) -> Iterator[holdfast.Client]:
    with holdfast.connect(zookeeper_server.url, ttl=10) as client:
        yield client


def wait_for_participants(java: Java, path: str, count: int) -> None:
    eventually(lambda: len(java.participants(path)) == count)


# ---- exclusion


def test_python_waits_while_java_holds(java: Java, locks: holdfast.Client) -> None:
    java.acquire("j", path_of("stock"))
    held = java.held("j")
    assert held is not None
    assert locks.lock("stock").try_acquire() is None
    (holder,) = locks.inspect("stock").holders
    assert held.node.endswith(holder.owner)
    assert (holder.token, holder.pid) == (held.czxid, None)
    java.release("j")
    with locks.lock("stock", timeout=5) as lease:
        assert lease.token > held.czxid


def test_java_waits_while_python_holds(java: Java, locks: holdfast.Client) -> None:
    with locks.lock("stock") as lease:
        java.acquire("j", path_of("stock"), timeout=0.2)
        assert java.held("j") is None
        assert len(java.participants(path_of("stock"))) == 1, "the contender that timed out left its node behind"
    java.acquire("j", path_of("stock"), timeout=5)
    held = java.held("j")
    assert held is not None
    assert held.czxid > lease.token
    java.release("j")


def test_unprotected_counter_loses_no_update(java: Java, locks: holdfast.Client, tmp_path: Path) -> None:
    rounds, file = 25, tmp_path / "counter"
    file.write_text("0")

    def count() -> None:
        for _ in range(rounds):
            with locks.lock("counter"):
                number = int(file.read_text())
                time.sleep(0.001)  # Java does the same, so that a missing lock would lose updates
                file.write_text(str(number + 1))

    for contender in ("j1", "j2"):
        java.count(contender, path_of("counter"), file, rounds)
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(count) for _ in range(2)]:
            done.result(60)
    for contender in ("j1", "j2"):
        java.counted(contender)
    assert file.read_text() == str(4 * rounds)


# ---- order


class Turn:
    """A contender in Python that waits for the lock on its own thread."""

    def __init__(self, locks: holdfast.Client, name: str) -> None:
        self.at = 0.0
        self.token = 0
        self._let_go = threading.Event()
        self._has_it = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(locks, name))
        self._thread.start()

    def _run(self, locks: holdfast.Client, name: str) -> None:
        with locks.lock(name, timeout=30) as lease:
            self.at, self.token = time.monotonic(), lease.token
            self._has_it.set()
            self._let_go.wait(30)

    def held(self) -> tuple[float, int]:
        assert self._has_it.wait(20)
        return self.at, self.token

    def release(self) -> float:
        before = time.monotonic()
        self._let_go.set()
        self._thread.join(20)
        return before


class JavaTurn:
    """A contender in Java."""

    def __init__(self, java: Java, contender: str, path: str) -> None:
        self._java, self._contender = java, contender
        java.acquire(contender, path)

    def held(self) -> tuple[float, int]:
        held = self._java.held(self._contender)
        assert held is not None
        return held.at, held.czxid

    def release(self) -> float:
        return self._java.release(self._contender)


def test_java_and_python_share_one_queue(java: Java, locks: holdfast.Client) -> None:
    path = path_of("queue")
    kinds: list[Callable[[int], Turn | JavaTurn]] = [
        lambda number: Turn(locks, "queue"),
        lambda number: JavaTurn(java, f"j{number}", path),
    ]
    turns: list[Turn | JavaTurn] = []
    for number, kind in enumerate((1, 0, 1, 1, 0, 0, 1, 0)):
        turns.append(kinds[kind](number))
        wait_for_participants(java, path, number + 1)
    held, released = [], []
    for turn in turns:
        held.append(turn.held())  # waits forever if the order is wrong
        released.append(turn.release())
    tokens = [token for _, token in held]
    assert tokens == sorted(set(tokens))
    for before, (at, _) in zip(released, held[1:], strict=False):
        assert at > before, "granted before the predecessor released"
        assert at - before < WOKEN_WITHIN
    assert all(first <= second for first, second in pairwise(at for at, _ in held))
    wait_for_participants(java, path, 0)


# ---- deaths


def test_dead_waiter_in_java_is_skipped(jars: str, zookeeper_server: ZooKeeperServer, locks: holdfast.Client) -> None:
    with Java(jars, zookeeper_server.address, session=SHORT) as victim:
        with locks.lock("stock"):
            victim.acquire("j", path_of("stock"))
            wait_for_participants(victim, path_of("stock"), 2)
            behind = Turn(locks, "stock")
            wait_for_participants(victim, path_of("stock"), 3)
            victim.kill()
            died = time.monotonic()
        at, _ = behind.held()
        behind.release()
    assert at - died < SHORT + 1.0


def test_lock_of_a_dead_holder_in_java_is_granted(
    jars: str, zookeeper_server: ZooKeeperServer, locks: holdfast.Client
) -> None:
    with Java(jars, zookeeper_server.address, session=SHORT) as victim:
        victim.acquire("j", path_of("stock"))
        assert victim.held("j") is not None
        behind = Turn(locks, "stock")
        wait_for_participants(victim, path_of("stock"), 2)
        victim.kill()
        died = time.monotonic()
        at, _ = behind.held()
        behind.release()
    assert at - died < SHORT + 1.0


def test_lock_of_a_dead_holder_in_python_is_granted(java: Java, zookeeper_server: ZooKeeperServer) -> None:
    with Child(zookeeper_server.url, ttl=SHORT) as child:
        token = child.do("keep.setdefault(1, locks.lock('stock').acquire()).token")
        java.acquire("j", path_of("stock"))
        wait_for_participants(java, path_of("stock"), 2)
        child.kill()
        died = time.monotonic()
    held = java.held("j")
    java.release("j")
    assert held is not None
    assert held.at - died < SHORT + 1.0
    assert held.czxid > token


# ---- names, and foreign nodes


@pytest.mark.parametrize("name, node", NAMES.items(), ids=map(ascii, NAMES))
def test_names_map_to_the_same_nodes(java: Java, locks: holdfast.Client, name: str, node: str) -> None:
    with locks.lock(name) as lease:
        assert [state.name for state in locks.locks()] == [name]
        java.acquire("j", path_of(node), timeout=0)
        assert java.held("j") is None
    java.acquire("j", path_of(node), timeout=5)
    held = java.held("j")
    assert held is not None
    assert held.czxid > lease.token
    assert locks.lock(name).try_acquire() is None
    java.release("j")


@pytest.mark.parametrize("child, blocks", [("-odd", True), ("zeta", False), ("_c_x", False), ("0", True)])
def test_foreign_children_are_treated_the_same_by_both(
    java: Java, locks: holdfast.Client, zookeeper_server: ZooKeeperServer, child: str, blocks: bool
) -> None:
    zookeeper_server.client().create(f"{path_of('stock')}/{child}", makepath=True)
    java.acquire("j", path_of("stock"), timeout=0.2)
    held = java.held("j")
    if held is not None:
        java.release("j")
    lease = locks.lock("stock").try_acquire(timeout=0.2)
    if lease is not None:
        lease.release()
    assert (held is None, lease is None) == (blocks, blocks)


def test_revocation_request_is_ignored(java: Java, locks: holdfast.Client) -> None:
    with locks.lock("stock", ttl=1) as lease:
        (node,) = java.participants(path_of("stock"))
        java.revoke(node)
        lease.renew()
        lease.check()
        assert locks.inspect("stock").holders


# ---- read-write locks


def test_readers_of_both_languages_hold_together_and_exclude_writers_of_both(
    java: Java, locks: holdfast.Client
) -> None:
    path, rwlock = path_of("table"), locks.rwlock("table")
    with rwlock.read:
        java.acquire("j", path, recipe="read", timeout=5)
        assert java.held("j") is not None
        java.acquire("w", path, recipe="write", timeout=0.2)
        assert java.held("w") is None
    assert rwlock.write.try_acquire() is None
    java.release("j", "read")
    with rwlock.write.acquire(timeout=5):
        for recipe in ("read", "write"):
            java.acquire("j", path, recipe=recipe, timeout=0.2)
            assert java.held("j") is None
    java.acquire("w", path, recipe="write", timeout=5)
    assert java.held("w") is not None
    assert rwlock.read.try_acquire() is None
    java.release("w", "write")


def test_readers_of_one_language_do_not_pass_a_waiting_writer_of_the_other(java: Java, locks: holdfast.Client) -> None:
    path, rwlock = path_of("table"), locks.rwlock("table")
    reading = rwlock.read.acquire()
    java.acquire("w", path, recipe="write")
    wait_for_participants(java, path, 2)
    with ThreadPoolExecutor(2) as pool:
        assert pool.submit(rwlock.read.try_acquire).result(10) is None
        reading.release()
        assert java.held("w") is not None
        writing = pool.submit(lambda: rwlock.write.acquire(timeout=20))
        wait_for_participants(java, path, 2)
        java.acquire("j", path, recipe="read", timeout=0.2)
        assert java.held("j") is None
        java.release("w", "write")
        writing.result(20).release()


def test_downgrade_of_one_language_lets_no_waiting_writer_of_the_other_in(java: Java, locks: holdfast.Client) -> None:
    path, rwlock = path_of("table"), locks.rwlock("table")
    writing = rwlock.write.acquire()
    java.acquire("w", path, recipe="write")
    wait_for_participants(java, path, 2)
    reading = rwlock.read.acquire(timeout=5)
    writing.release()
    java.acquire("j", path, recipe="read", timeout=0.3)
    assert java.held("j") is None, "behind the writer, which still waits"
    assert [holder.mode for holder in locks.inspect("table").holders] == ["read"]
    reading.release()
    assert java.held("w") is not None
    if CURATOR is None:  # before 5.5 Curator lets writers in
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(lambda: rwlock.write.acquire(timeout=20))
            wait_for_participants(java, path, 2)
            java.acquire("w", path, recipe="read", timeout=5)
            assert java.held("w") is not None
            java.release("w", "write")
            wait_for_participants(java, path, 2)
            assert not waiting.done()
            java.release("w", "read")
            waiting.result(20).release()
    else:
        java.release("w", "write")


# ---- semaphores


def test_permits_of_both_languages_are_counted_together(java: Java, locks: holdfast.Client) -> None:
    path, semaphore = path_of("slots"), locks.semaphore("slots", 3)
    with semaphore.acquire(2):
        java.acquire("j", path, recipe="permits", timeout=5)  # Java reads the size that Python has stored
        assert java.held("j") is not None
        java.acquire("k", path, recipe="permits", size=3, timeout=0.2)
        assert java.held("k") is None
        assert semaphore.try_acquire() is None
        state = locks.inspect("slots")
        assert (state.size, state.free, len(state.holders)) == (3, 0, 2)
    assert semaphore.try_acquire(3) is None
    java.release("j", "permits")
    semaphore.acquire(3, timeout=5).release()


def test_waiters_of_one_language_are_woken_by_permits_of_the_other(java: Java, locks: holdfast.Client) -> None:
    path, semaphore = path_of("slots"), locks.semaphore("slots", 2)
    held = semaphore.acquire(2)
    java.acquire("j", path, recipe="permits", size=2)  # Curator takes several one by one, and would wait between them
    wait_for_participants(java, f"{path}/locks", 1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: semaphore.acquire(2, timeout=20))
        wait_for_participants(java, f"{path}/locks", 2)
        held.release()
        assert java.held("j") is not None
        assert not waiting.done()
        java.release("j", "permits")
        waiting.result(20).release()
