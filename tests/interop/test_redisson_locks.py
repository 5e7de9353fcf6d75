"""Redisson's RLock, RFencedLock, RSpinLock and RFairLock on the same names: exclusion, counts, tokens, breaking, names.

Needs a JDK and Maven, which fetches Redisson: ``make interop``.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Final

import pytest

import holdfast
from tests.interop.counterparts import awkward_names, exclusive
from tests.interop.recording import NEVER, TO_JAVA, TO_PYTHON, UNORDERED
from tests.interop.redisson import JAVA, Java, Kind
from tests.servers.redis import RedisServer
from tests.support.child import Child
from tests.support.waiting import eventually

if not os.environ.get("INTEROP"):
    pytest.skip("INTEROP is not set", allow_module_level=True)

pytestmark = pytest.mark.timeout(400)  # the first run downloads the jars

KINDS: Final[tuple[Kind, ...]] = ("lock", "fenced", "spin", "fair")
each_kind: Final = pytest.mark.parametrize("kind", KINDS)


# ---- exclusion


@pytest.mark.essential
@pytest.mark.interop(JAVA, "exclusion", direction=TO_PYTHON)
@each_kind
def test_python_waits_while_java_holds(redisson: Java, locks: holdfast.Client, kind: Kind) -> None:
    assert redisson.take("j", kind, "stock") is not None
    assert locks.lock("stock").try_acquire() is None
    (holder,) = locks.inspect("stock").holders
    assert (holder.pid, holder.count) == (None, 1)
    redisson.release("j", kind, "stock")
    locks.lock("stock").acquire(timeout=5).release()


@pytest.mark.essential
@pytest.mark.interop(JAVA, "exclusion", direction=TO_JAVA)
@each_kind
def test_java_waits_while_python_holds(redisson: Java, locks: holdfast.Client, kind: Kind) -> None:
    with locks.lock("stock") as lease:
        assert redisson.take("j", kind, "stock", timeout=0.2) is None
        state = redisson.state("j", kind, "stock")
        assert (state.locked, state.holds) == (True, 0)
        assert 0 < state.ttl <= lease.ttl
        assert redisson.release("j", kind, "stock") is None, "Java has released what it does not hold"
        lease.check()
    assert redisson.take("j", kind, "stock") is not None
    redisson.release("j", kind, "stock")
    assert not locks.lock("stock").locked()


@pytest.mark.interop(JAVA, "re-entry", direction=TO_PYTHON)
@each_kind
def test_re_entries_of_java_are_counted(redisson: Java, locks: holdfast.Client, kind: Kind) -> None:
    for count in (1, 2, 3):
        assert redisson.take("j", kind, "stock") is not None
        assert [holder.count for holder in locks.inspect("stock").holders] == [count]
    for _ in range(3):
        assert locks.lock("stock").try_acquire() is None
        redisson.release("j", kind, "stock")
    locks.lock("stock").acquire(timeout=5).release()


@pytest.mark.interop(JAVA, "re-entry", direction=TO_JAVA)
@each_kind
def test_re_entries_of_python_keep_java_out_until_the_last_is_over(
    redisson: Java, locks: holdfast.Client, kind: Kind
) -> None:
    lock = locks.lock("stock")
    with lock, lock:
        with lock:
            pass
        assert redisson.take("j", kind, "stock", timeout=0) is None
    assert redisson.take("j", kind, "stock") is not None
    redisson.release("j", kind, "stock")


def test_lease_of_java_ends_for_python_by_itself(redisson: Java, locks: holdfast.Client) -> None:
    held = redisson.take("j", "lock", "stock", lease=2.0)
    assert held is not None
    assert 0 < redisson.state("j", "lock", "stock").ttl <= 2.0
    locks.lock("stock").acquire(timeout=10).release()
    assert redisson.release("j", "lock", "stock") is None


# ---- tokens


@pytest.mark.essential
@pytest.mark.interop("RFencedLock", "tokens in the order of grants")
def test_tokens_of_both_languages_are_in_the_order_of_grants(redisson: Java, locks: holdfast.Client) -> None:
    tokens = []
    for _ in range(5):
        held = redisson.take("j", "fenced", "stock")
        assert held is not None
        tokens.append(held.token)
        redisson.release("j", "fenced", "stock")
        for _ in range(2):
            with locks.lock("stock", timeout=5) as lease:
                tokens.append(lease.token)
    assert all(first < second for first, second in pairwise(tokens)), tokens


@pytest.mark.interop("RFencedLock", "`getToken()` for a Python holder's token: it may be ahead", verdict=NEVER)
def test_token_that_java_reads_is_the_last_of_the_holders_block(redisson: Java, locks: holdfast.Client) -> None:
    """A client whose callers wait for each other reserves 16 more tokens with one grant."""
    ahead = []

    def hold() -> None:
        for _ in range(10):
            with locks.lock("stock", timeout=20) as lease:
                ahead.append(redisson.token("stock") - lease.token)

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(hold) for _ in range(3)]:
            done.result(60)
    assert min(ahead) >= 0
    assert 0 < max(ahead) <= 16
    with locks.lock("stock") as lease:
        last = lease.token
    held = redisson.take("j", "fenced", "stock")
    assert held is not None
    assert held.token > last
    redisson.release("j", "fenced", "stock")


# ---- breaking


@pytest.mark.interop(JAVA, "`forceUnlock` and `break_`", direction=TO_PYTHON)
@each_kind
def test_force_unlock_by_java_is_a_loss_in_python(redisson: Java, locks: holdfast.Client, kind: Kind) -> None:
    lease = locks.lock("stock").acquire()
    assert redisson.force_unlock(kind, "stock")
    eventually(lambda: not lease.held, within=20)
    assert lease.lost_reason == "broken"
    assert redisson.take("j", kind, "stock") is not None
    with pytest.raises(holdfast.LockLost):
        lease.release()
    assert redisson.state("j", kind, "stock").holds == 1, "the release of a lost lease took Java's lock"
    redisson.release("j", kind, "stock")


@pytest.mark.interop(JAVA, "`forceUnlock` and `break_`", direction=TO_JAVA)
@each_kind
def test_break_by_python_takes_the_lock_from_java(redisson: Java, locks: holdfast.Client, kind: Kind) -> None:
    assert redisson.take("j", kind, "stock") is not None
    assert locks.break_("stock")
    assert redisson.state("j", kind, "stock").holds == 0
    with locks.lock("stock", timeout=5) as lease:
        assert redisson.release("j", kind, "stock") is None
        assert redisson.take("k", kind, "stock", timeout=0) is None
        lease.check()
    assert redisson.take("k", kind, "stock") is not None
    redisson.release("k", kind, "stock")


def test_break_wakes_a_waiter_in_java_and_raises_its_next_token(redisson: Java, locks: holdfast.Client) -> None:
    held = redisson.take("j", "fenced", "stock")
    assert held is not None
    redisson.acquire("k", "fenced", "stock")
    eventually(lambda: locks.break_("stock"))
    following = redisson.held("k")
    assert following is not None
    assert following.token > held.token
    redisson.release("k", "fenced", "stock")


# ---- order


@pytest.mark.interop(JAVA, "order of grants", verdict=UNORDERED)
@each_kind
def test_java_overtakes_a_fair_waiter_in_python_that_does_not_run_and_excludes_it(
    redisson: Java, locks: holdfast.Client, redis_server: RedisServer, kind: Kind
) -> None:
    """Java does not see the queue of Python's waiters. What was handed over to one that does not run ends in 2 s."""
    lease = locks.lock("stock").acquire()
    with Child(redis_server.url) as child:
        child.send("keep.setdefault(1, locks.lock('stock', fair=True).acquire(timeout=30)).token")
        eventually(lambda: locks.inspect("stock").waiters == 1)
        child.freeze()
        lease.release()
        assert locks.lock("stock", fair=True).try_acquire() is None
        assert redisson.take("j", kind, "stock", timeout=10) is not None
        child.wake()
        eventually(lambda: locks.inspect("stock").waiters == 1)
        assert redisson.state("j", kind, "stock").holds == 1
        redisson.release("j", kind, "stock")
        assert child.answer() > 0


# ---- names


@pytest.mark.interop(JAVA, "awkward names")
@each_kind
def test_names_mean_the_same_lock(redisson: Java, locks: holdfast.Client, kind: Kind) -> None:
    """Exclusion, tokens and wake-ups."""
    for name in awkward_names():
        with exclusive(locks, kind, name) as lease:
            assert redisson.take("j", kind, name, timeout=0) is None, name
            assert redisson.token(name) == lease.token
        held = redisson.take("j", kind, name)
        assert held is not None, name
        assert kind != "fenced" or held.token == lease.token + 1
        assert locks.lock(name).try_acquire() is None
        redisson.release("j", kind, name)


def test_waiters_for_awkward_names_are_woken(redisson: Java, locks: holdfast.Client) -> None:
    with ThreadPoolExecutor(1) as pool:
        for name in awkward_names():
            assert redisson.take("j", "lock", name) is not None
            waiting = pool.submit(exclusive, locks, "lock", name)
            eventually(lambda name=name: locks.inspect(name).waiters == 1)  # type: ignore[misc]
            redisson.release("j", "lock", name)
            lease = waiting.result(20)
            redisson.acquire("k", "lock", name)
            lease.release()
            assert redisson.held("k") is not None, name
            redisson.release("k", "lock", name)


def test_name_with_a_namespace_is_the_name_with_its_prefix(redisson: Java, redis_server: RedisServer) -> None:
    with holdfast.connect(redis_server.url, namespace="shop") as locks, locks.lock("stock"):
        assert redisson.take("j", "lock", "shop:stock", timeout=0) is None
        assert redisson.take("j", "lock", "stock", timeout=0) is not None
        redisson.release("j", "lock", "stock")
