"""Lost requests, lost replies, late duplicates, cancellation: faults R1–R6, R8, sync and async.

A proxy that understands RESP loses one request or one reply, by a reset or in a black hole.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import holdfast
from holdfast.engines.redis import scripts
from holdfast.testing.proxy import FaultProxy
from tests.redis.losses import LOSSES, Arm, every_loss, only_keys_with_ttl
from tests.servers.redis import RedisServer
from tests.support.child import Child
from tests.support.signal_injector import interrupting
from tests.support.waiting import LASTING, eventually, renewed


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[FaultProxy]:
    with FaultProxy(redis_server.host, redis_server.port) as started:
        yield started


@pytest.fixture
def locks(proxy: FaultProxy) -> Iterator[holdfast.Client]:
    with holdfast.connect(proxy.url, ttl=3.0, request_timeout=0.4) as client:
        client.ping()
        yield client


# -- faults R1, R2, R3, R8: the reply to an acquire is lost ----------------------------------------------------------


@every_loss
def test_R1_acquire_with_a_lost_reply_is_granted(redis_server: RedisServer, proxy: FaultProxy, lose: Arm) -> None:
    with holdfast.connect(proxy.url) as locks:  # one try, whose reply may take two request timeouts
        locks.ping()
        rule = lose(proxy, scripts.ACQUIRE)
        lease = locks.lock("r1").try_acquire()
        assert rule.fired  # type: ignore[attr-defined]
        assert lease is not None
        assert lease.held
        assert redis_server.client().hkeys("r1") == [lease.owner.encode()]
        assert locks.inspect("r1").token == lease.token
        lease.release()
    assert not redis_server.client().exists("r1")
    assert only_keys_with_ttl(redis_server), "R2: every key has an expiry"


@every_loss
async def test_R1_async_acquire_with_a_lost_reply_is_granted(
    redis_server: RedisServer, proxy: FaultProxy, lose: Arm
) -> None:
    async with holdfast.aio.connect(proxy.url) as locks:
        await locks.ping()
        rule = lose(proxy, scripts.ACQUIRE)
        lease = await locks.lock("r1").try_acquire()
        assert rule.fired  # type: ignore[attr-defined]
        assert lease is not None
        assert redis_server.client().hkeys("r1") == [lease.owner.encode()]
        await lease.release()
        assert not redis_server.client().exists("r1")


@every_loss
def test_R3_same_lock_can_be_acquired_again_after_a_lost_reply(
    proxy: FaultProxy, locks: holdfast.Client, lose: Arm
) -> None:
    lock = locks.lock("r3", ttl=60)
    lose(proxy, scripts.ACQUIRE)
    first = lock.acquire(timeout=5)
    first.release()
    second = lock.acquire(timeout=5)  # does not wait for its own earlier grant
    assert second.token > first.token
    second.release()


@pytest.mark.parametrize("lose", LOSSES[:2])
def test_R8_waiting_acquire_with_a_lost_reply_is_granted(
    redis_server: RedisServer, proxy: FaultProxy, locks: holdfast.Client, lose: Arm
) -> None:
    with holdfast.connect(redis_server.url) as others:
        blocker = others.lock("r8").acquire()
        got: list[holdfast.Lease] = []
        thread = threading.Thread(target=lambda: got.append(locks.lock("r8").acquire(timeout=10)))
        thread.start()
        eventually(lambda: others.inspect("r8").waiters == 1)
        lose(proxy, scripts.ACQUIRE)
        blocker.release()
        thread.join(10)
        assert got[0].held
        assert others.inspect("r8").holders[0].owner == got[0].owner
        got[0].release()


def test_server_silent_after_the_acquire_was_sent_is_an_unknown_outcome(
    redis_server: RedisServer, proxy: FaultProxy, locks: holdfast.Client
) -> None:
    proxy.on(script=scripts.ACQUIRE, times=None).black_hole()
    start = time.monotonic()
    with pytest.raises(holdfast.OutcomeUnknown) as caught:
        locks.lock("unknown", ttl=30).acquire(timeout=1.0)
    assert time.monotonic() - start < 2.5, "long before unavailable_after"
    assert caught.value.operation == "acquire"
    assert isinstance(caught.value, holdfast.EngineUnavailable)
    # The withdrawal continues in the background: the lock is free long before its ttl.
    eventually(lambda: not redis_server.client().exists("unknown"), 5)


# -- fault R4: release ---------------------------------------------------------------------------------------------


@every_loss
def test_R4_release_with_a_lost_reply_succeeds(
    redis_server: RedisServer, proxy: FaultProxy, locks: holdfast.Client, lose: Arm
) -> None:
    lease = locks.lock("r4").acquire()
    rule = lose(proxy, scripts.RELEASE)
    lease.release()
    assert rule.fired  # type: ignore[attr-defined]
    assert lease.lost_reason is None
    assert not redis_server.client().exists("r4")


@every_loss
async def test_R4_async_release_with_a_lost_reply_succeeds(
    redis_server: RedisServer, proxy: FaultProxy, lose: Arm
) -> None:
    async with holdfast.aio.connect(proxy.url, ttl=3.0, request_timeout=0.4) as locks:
        lease = await locks.lock("r4").acquire()
        lose(proxy, scripts.RELEASE)
        await lease.release()
        assert lease.lost_reason is None
        assert not redis_server.client().exists("r4")


@every_loss
def test_renewal_with_a_lost_reply_is_repeated(
    redis_server: RedisServer, proxy: FaultProxy, locks: holdfast.Client, lose: Arm
) -> None:
    with locks.lock("renewed") as lease:
        rule = lose(proxy, scripts.RENEW)
        eventually(lambda: rule.fired)  # type: ignore[attr-defined]
        eventually(renewed(lease))


def test_break_with_a_lost_reply_is_never_repeated(
    redis_server: RedisServer, proxy: FaultProxy, locks: holdfast.Client
) -> None:
    with holdfast.connect(redis_server.url, ttl=LASTING) as others:
        victim = others.lock("broken").acquire()
        proxy.on(script=scripts.BREAK).drop_reply_and_reset()
        with pytest.raises(holdfast.OutcomeUnknown) as caught:
            locks.break_("broken")
        assert caught.value.operation == "break_"
        assert len([words for words in proxy.seen if scripts.BREAK.sha.encode() in words]) == 1
        assert victim.lost.wait(15)
        with others.lock("broken", timeout=5) as following:
            assert following.token > victim.token
        with pytest.raises(holdfast.LockLost):
            victim.release()


@every_loss
def test_break_by_token_with_a_lost_reply_is_repeated_and_spares_the_next_holder(
    redis_server: RedisServer, proxy: FaultProxy, locks: holdfast.Client, lose: Arm
) -> None:
    with (
        holdfast.connect(redis_server.url, ttl=LASTING) as others,
        holdfast.connect(redis_server.url) as third,
        ThreadPoolExecutor(1) as pool,
    ):
        victim = others.lock("broken by token").acquire()
        following = pool.submit(third.lock("broken by token").acquire, timeout=15)
        eventually(lambda: third.inspect("broken by token").waiters == 1)
        lose(proxy, scripts.BREAK)
        assert locks.break_("broken by token", token=victim.token) is True
        assert len([words for words in proxy.seen if scripts.BREAK.sha.encode() in words]) >= 2
        lease = following.result(15)
        assert lease.token > victim.token
        assert locks.break_("broken by token", token=victim.token) is False
        lease.renew()
        lease.release()
        with pytest.raises(holdfast.LockLost):
            victim.release()


def test_break_by_token_without_a_reply_has_an_unknown_outcome(
    redis_server: RedisServer, proxy: FaultProxy, locks: holdfast.Client
) -> None:
    with holdfast.connect(redis_server.url, ttl=LASTING) as others:
        victim = others.lock("silent").acquire()
        proxy.on(script=scripts.BREAK, times=None).drop_reply_and_reset()
        with pytest.raises(holdfast.OutcomeUnknown) as caught:
            locks.break_("silent", token=victim.token)
        assert caught.value.operation == "break_"
        assert victim.lost.wait(15)
        with pytest.raises(holdfast.LockLost):
            victim.release()


# -- late duplicates -----------------------------------------------------------------------------------------------


def test_late_duplicate_of_an_acquire_after_release_leaves_no_orphan(
    redis_server: RedisServer, proxy: FaultProxy, locks: holdfast.Client
) -> None:
    proxy.on(script=scripts.ACQUIRE).drop_reply_and_reset()
    proxy.on(script=scripts.ACQUIRE, nth=2).duplicate()
    lease = locks.lock("late").acquire(timeout=5)
    lease.release()
    assert not redis_server.client().exists("late")
    proxy.release_duplicates()
    assert not redis_server.client().exists("late"), "the tombstone refuses it"
    with locks.lock("late").acquire(timeout=5) as again:
        assert again.token > lease.token


# -- faults R5, R6: cancelled and interrupted acquires ---------------------------------------------------------------


async def test_R5_cancelled_acquire_leaves_no_orphan(redis_server: RedisServer, proxy: FaultProxy) -> None:
    async with holdfast.aio.connect(proxy.url, ttl=30.0) as locks:
        await locks.ping()
        held_back = proxy.on(script=scripts.ACQUIRE).delay()
        task = asyncio.create_task(locks.lock("r5").acquire())
        await asyncio.to_thread(held_back.wait, 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        held_back.release()
        await asyncio.to_thread(eventually, lambda: free_with_tombstone(redis_server, "r5"))
        async with locks.lock("r5", timeout=5) as lease:
            assert lease.held


def free_with_tombstone(server: RedisServer, name: str) -> bool:
    """No lock, but a tombstone against a duplicate that may still be in flight."""
    client = server.client()
    return not client.exists(name) and any(b":gone:" in key for key in client.scan_iter(f"*{name}*"))


async def test_R5_acquire_cancelled_at_any_moment_leaves_no_orphan(redis_server: RedisServer, redis_url: str) -> None:
    """Cancels an acquire after 0, 20, 40 … µs: no moment leaves a lock behind."""
    async with holdfast.aio.connect(redis_url, ttl=30.0) as locks, holdfast.aio.connect(redis_url) as others:
        await locks.ping()
        for moment in range(150):
            task = asyncio.create_task(locks.lock("sweep").acquire())
            await asyncio.sleep(moment * 20e-6)
            task.cancel()
            try:
                await (await task).release()
            except asyncio.CancelledError:
                pass
        async with others.lock("sweep", timeout=5):
            pass
        await asyncio.to_thread(eventually, lambda: not redis_server.client().exists("sweep"))


def test_R6_ctrl_c_during_an_acquire_leaves_no_orphan(
    redis_server: RedisServer, proxy: FaultProxy, locks: holdfast.Client
) -> None:
    held_back = proxy.on(script=scripts.ACQUIRE).delay()

    def interrupt() -> None:
        assert held_back.wait(5)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        locks.lock("r6", ttl=30, reentrant=False).acquire()
    held_back.release()
    eventually(lambda: free_with_tombstone(redis_server, "r6"))
    locks.lock("r6").acquire(timeout=5).release()


# A socket of a connect() that was interrupted inside the driver can only be garbage-collected.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.filterwarnings("ignore:a lease on lock:ResourceWarning")
@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")  # interrupted before its first step
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # interrupted inside a __del__
def test_ctrl_c_at_any_moment_leaves_no_orphan(redis_server: RedisServer, redis_url: str) -> None:
    """A timer interrupts acquire and release after 1, 2, 3 … × 10 µs."""
    with interrupting() as interrupt, holdfast.connect(redis_url, ttl=LASTING) as locks:
        lock = locks.lock("interrupted")
        locks.ping()
        for moment in range(1, 120):
            interrupt(moment * 10e-6, lambda: lock.acquire(timeout=5).release())
        start = time.monotonic()
        lock.acquire(timeout=10).release()
        assert time.monotonic() - start < LASTING + 1.5, "at worst it expires after its ttl"
        eventually(lambda: not redis_server.client().exists("interrupted"))


def test_reply_in_one_byte_slices_is_parsed(proxy: FaultProxy) -> None:
    proxy.on(script=scripts.ACQUIRE, times=None).slice()
    proxy.on(script=scripts.RELEASE, times=None).slice()
    with holdfast.connect(proxy.url, request_timeout=5, unavailable_after=20) as locks:
        for _ in range(5):
            locks.lock("slow").acquire(timeout=20).release()


def test_K2a_grant_that_took_longer_than_its_lease_is_discarded(proxy: FaultProxy, redis_server: RedisServer) -> None:
    """The process is frozen between send and check for longer than the ttl: the body must not start on an expired
    lease."""
    with Child(proxy.url, ttl=LASTING) as victim:
        victim.do("locks.ping()")
        held_back = proxy.on(script=scripts.ACQUIRE).delay()
        victim.send(
            "(lambda lease: keep.update(k=lease) or [lease.remaining, lease.owner])(locks.lock('k2a').acquire())"
        )
        assert held_back.wait(5)
        victim.freeze()
        held_back.release()
        eventually(lambda: not redis_server.client().exists("k2a"))
        victim.wake()
        remaining, owner = victim.answer()
        assert remaining > 0
        assert redis_server.client().hkeys("k2a") == [owner.encode()]
        assert redis_server.client().pttl("k2a") > 0


def test_grant_that_arrives_too_late_is_withdrawn(proxy: FaultProxy, redis_server: RedisServer) -> None:
    """Found by simulation: executed late, answered late, and then left on the server for its whole ttl."""
    ttl = 3.0
    with Child(proxy.url, ttl=ttl) as victim:
        victim.do("locks.ping() or locks.lock('warm').acquire().release()")
        held_back = proxy.on(script=scripts.ACQUIRE).delay(side="request")
        victim.send("error_of(lambda: locks.lock('late').acquire(timeout=2))")
        assert held_back.wait(5)
        victim.freeze()
        start = time.monotonic()
        eventually(lambda: time.monotonic() - start > ttl + 0.1)  # longer than the lease, on the clock of the victim
        held_back.release()
        eventually(lambda: redis_server.client().exists("late"))
        victim.wake()
        assert victim.answer().startswith(("UnavailableOutcomeUnknown", "OutcomeUnknown"))
        eventually(lambda: not redis_server.client().exists("late"), 0.7 * ttl)  # withdrawn, not expired
