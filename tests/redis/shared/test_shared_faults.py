"""Lost requests, lost replies, cancellation and kills, at each step of a read-write lock and of a semaphore."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import holdfast
from holdfast.engines.redis import scripts
from holdfast.testing.proxy import FaultProxy
from tests.redis.losses import LOSSES, Arm, only_keys_with_ttl
from tests.servers.redis import RedisServer
from tests.support.waiting import LASTING, eventually, renewed, until

every_loss = pytest.mark.parametrize("lose", LOSSES)

#: How a client takes each kind, and the script that does it.
Take = Callable[[Any], Any]
KINDS: dict[str, tuple[Take, scripts.Script, scripts.Script, scripts.Script]] = {
    "read": (lambda each: each.rwlock("job").read, scripts.RW_ACQUIRE, scripts.RW_RELEASE, scripts.RW_RENEW),
    "write": (lambda each: each.rwlock("job").write, scripts.RW_ACQUIRE, scripts.RW_RELEASE, scripts.RW_RENEW),
    "permits": (
        lambda each: each.semaphore("job", 2),
        scripts.PERMITS_ACQUIRE,
        scripts.PERMITS_RELEASE,
        scripts.PERMITS_RENEW,
    ),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[FaultProxy]:
    with FaultProxy(redis_server.host, redis_server.port) as started:
        yield started


def is_free(server: RedisServer) -> bool:
    """Whether nothing is held: a semaphore has all its permits, and of a lock nothing is left."""
    client: Any = server.client()
    if client.exists("{job}:timeout", "holdfast_holders:{job}"):
        return False
    return bool(client.type("job") == b"none" or client.get("job") == b"2")


@every_kind
@every_loss
def test_acquire_with_a_lost_reply_is_one_grant(
    kind: str, lose: Arm, redis_server: RedisServer, proxy: FaultProxy
) -> None:
    take, acquire, _, _ = KINDS[kind]
    with holdfast.connect(proxy.url, request_timeout=0.4) as client, holdfast.connect(redis_server.url) as other:
        client.ping()
        rule: Any = lose(proxy, acquire)
        lease = take(client).acquire(timeout=5)
        assert rule.fired
        state = other.inspect("job")
        assert [(holder.owner, holder.token, holder.count) for holder in state.holders] == [
            (lease.owner, lease.token, 1)
        ]
        lease.release()
        assert is_free(redis_server)
    assert only_keys_with_ttl(redis_server)


@every_kind
@every_loss
def test_release_with_a_lost_reply_succeeds(kind: str, lose: Arm, redis_server: RedisServer, proxy: FaultProxy) -> None:
    take, _, release, _ = KINDS[kind]
    with holdfast.connect(proxy.url, request_timeout=0.4) as client:
        lease = take(client).acquire()
        rule: Any = lose(proxy, release)
        lease.release()
        assert rule.fired
        assert is_free(redis_server)


@every_kind
def test_renewal_with_a_lost_reply_is_repeated(kind: str, redis_server: RedisServer, proxy: FaultProxy) -> None:
    take, _, _, renew = KINDS[kind]
    with holdfast.connect(proxy.url, ttl=LASTING) as client:
        lease = take(client).acquire()
        rule = proxy.on(script=renew).drop_reply_and_reset()
        eventually(renewed(lease), 10.0)
        assert rule.fired
        lease.release()
        assert is_free(redis_server)


@every_kind
def test_acquire_without_any_answer_is_withdrawn(kind: str, redis_server: RedisServer, proxy: FaultProxy) -> None:
    take, acquire, _, _ = KINDS[kind]
    with holdfast.connect(proxy.url, request_timeout=0.2) as client:
        client.ping()
        proxy.on(script=acquire, times=None).black_hole()
        with pytest.raises(holdfast.OutcomeUnknown):
            take(client).acquire(timeout=0.5)
        eventually(lambda: is_free(redis_server), 10.0)
        assert only_keys_with_ttl(redis_server)


@every_kind
async def test_cancelled_acquire_leaves_neither_a_hold_nor_a_place(kind: str, redis_server: RedisServer) -> None:
    take, _, _, _ = KINDS[kind]
    async with holdfast.aio.connect(redis_server.url) as client, holdfast.aio.connect(redis_server.url) as other:
        blocker = await (
            other.semaphore("job", 2).acquire(2) if kind == "permits" else other.rwlock("job").write.acquire()
        )
        waiting = asyncio.ensure_future(take(client).acquire())
        watcher = redis_server.client()
        await until(lambda: watcher.llen("holdfast_queue:{job}") == 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(lambda: watcher.llen("holdfast_queue:{job}") == 0)
        await blocker.release()
        assert is_free(redis_server)


@every_kind
def test_waiter_whose_grant_was_not_answered_has_it(kind: str, redis_server: RedisServer, proxy: FaultProxy) -> None:
    take, acquire, _, _ = KINDS[kind]
    with holdfast.connect(proxy.url, request_timeout=0.4) as client, holdfast.connect(redis_server.url) as other:
        blocker = other.semaphore("job", 2).acquire(2) if kind == "permits" else other.rwlock("job").write.acquire()
        got: list[Any] = []
        thread = threading.Thread(target=lambda: got.append(take(client).acquire(timeout=10)))
        thread.start()
        eventually(lambda: other.inspect("job").waiters == 1)
        proxy.on(script=acquire).drop_reply_and_reset()
        blocker.release()
        thread.join(10)
        assert got[0].held
        assert [holder.owner for holder in other.inspect("job").holders] == [got[0].owner]
        got[0].release()
        eventually(lambda: is_free(redis_server))


@every_kind
def test_release_after_an_unanswered_request_leaves_a_tombstone(
    kind: str, redis_server: RedisServer, proxy: FaultProxy
) -> None:
    """A duplicate of that request may still be under way."""
    take, acquire, _, _ = KINDS[kind]
    with holdfast.connect(proxy.url, request_timeout=0.4) as client:
        client.ping()
        proxy.on(script=acquire).drop_reply_and_reset()
        lease = take(client).acquire(timeout=5)
        lease.release()
        assert redis_server.client().exists(f"holdfast_lock:{{job}}:gone:{lease.owner}")
