"""The expectations of redis-py's own Lock tests, checked on the replacement, sync and async, on a real server."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.exceptions import LockError, LockNotOwnedError

from holdfast import errors
from holdfast.compat import redis_py
from holdfast.compat.redis_py import asyncio as redis_py_asyncio

MakeLock = Callable[..., Any]


async def done(value: Any) -> Any:
    """Returns the result of a call of the sync or the async lock."""
    return await value if inspect.isawaitable(value) else value


@asynccontextmanager
async def block(lock: Any) -> AsyncIterator[Any]:
    """Enters ``with lock`` or ``async with lock``."""
    if hasattr(lock, "__aenter__"):
        async with lock as entered:
            yield entered
    else:
        with lock as entered:
            yield entered


@pytest.fixture
def server(redis_url: str) -> Any:
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture(params=["sync", "asyncio", "sync, decoded", "asyncio, decoded"])
def make(request: pytest.FixtureRequest, redis_url: str) -> MakeLock:
    """``make(name, …)`` creates a lock of a redis-py client through ``lock_class``."""
    kind, _, decoded = request.param.partition(", ")
    module: Any = redis if kind == "sync" else redis.asyncio
    ours: Any = redis_py if kind == "sync" else redis_py_asyncio
    client = module.Redis.from_url(redis_url, decode_responses=bool(decoded))
    return lambda *args, **keywords: client.lock(*args, lock_class=ours.Lock, **keywords)


async def test_key_exists_while_the_lock_is_held(make: MakeLock, server: Any) -> None:
    lock = make("foo")
    assert await done(lock.acquire(blocking=False)) is True
    assert server.hkeys("foo") == [lock.local.token]
    await done(lock.release())
    assert not server.exists("foo")
    assert lock.local.token is None


async def test_lock_without_a_timeout_has_a_renewed_ttl_of_30_seconds(make: MakeLock, server: Any) -> None:
    lock = make("foo")
    await done(lock.acquire())
    assert 25_000 < server.pttl("foo") <= 30_000
    await done(lock.release())


async def test_locked_reports_whether_any_client_holds_the_lock(make: MakeLock) -> None:
    lock = make("foo")
    assert await done(lock.locked()) is False
    await done(lock.acquire(blocking=False))
    assert await done(lock.locked()) is True
    await done(lock.release())
    assert await done(lock.locked()) is False


async def test_owned_reports_whether_this_lock_holds_the_key(make: MakeLock) -> None:
    lock, other = make("foo"), make("foo")
    assert await done(lock.owned()) is False
    await done(lock.acquire(blocking=False))
    assert await done(lock.owned()) is True
    assert await done(other.owned()) is False
    await done(lock.release())
    assert await done(lock.owned()) is False
    await done(other.acquire(blocking=False))
    assert await done(lock.owned()) is False
    assert await done(other.owned()) is True
    await done(other.release())


async def test_owned_is_false_after_the_key_was_replaced(make: MakeLock, server: Any) -> None:
    lock = make("foo")
    await done(lock.acquire())
    server.set("foo", "a")
    assert await done(lock.owned()) is False
    with pytest.raises(LockNotOwnedError):
        await done(lock.release())


async def test_competing_locks_exclude_each_other(make: MakeLock) -> None:
    one, two = make("foo"), make("foo")
    assert await done(one.acquire(blocking=False))
    assert await done(two.acquire(blocking=False)) is False
    await done(one.release())
    assert await done(two.acquire(blocking=False))
    assert await done(one.acquire(blocking=False)) is False
    await done(two.release())


async def test_lock_is_not_reentrant(make: MakeLock) -> None:
    lock = make("foo")
    assert await done(lock.acquire(blocking=False))
    assert await done(lock.acquire(blocking=False)) is False
    await done(lock.release())


@pytest.mark.parametrize("timeout", [10, 9.5])
async def test_timeout_sets_the_ttl_of_the_lock(make: MakeLock, server: Any, timeout: float) -> None:
    lock = make("foo", timeout=timeout)
    assert await done(lock.acquire(blocking=False))
    assert 8000 < server.pttl("foo") <= timeout * 1000
    await done(lock.release())


async def test_blocking_timeout_of_a_busy_lock_returns_false(make: MakeLock) -> None:
    one = make("foo")
    assert await done(one.acquire(blocking=False))
    assert await done(make("foo", sleep=0.05, blocking_timeout=0.1).acquire()) is False
    assert await done(make("foo", sleep=60).acquire(blocking_timeout=0.1)) is False
    assert await done(make("foo", blocking=False).acquire()) is False
    assert await done(make("foo", blocking_timeout=-1).acquire()) is False
    await done(one.release())


async def test_attributes_are_those_of_redis_py(make: MakeLock) -> None:
    lock = make("foo", timeout=3, sleep=0.2, blocking=False, blocking_timeout=4, thread_local=False)
    seen = (lock.name, lock.timeout, lock.sleep, lock.blocking, lock.blocking_timeout, lock.thread_local)
    assert seen == ("foo", 3, 0.2, False, 4, False)
    assert lock.raise_on_release_error is True
    assert lock.redis is not None


async def test_block_holds_the_lock(make: MakeLock, server: Any) -> None:
    async with block(make("foo", blocking_timeout=0.2)) as lock:
        assert server.hkeys("foo") == [lock.local.token]
    assert not server.exists("foo")


async def test_block_of_a_busy_lock_raises_an_error_with_the_name(make: MakeLock) -> None:
    async with block(make("foo")):
        with pytest.raises(LockError) as caught:
            async with block(make("foo", blocking_timeout=0.1)):
                raise AssertionError("two are inside")
    assert caught.value.lock_name == "foo"


async def lost(lock: Any) -> None:
    """Wait until the lock's lease is lost."""
    assert await done(lock.lease.lost.wait(5))


async def test_block_that_outlives_its_lock_raises(make: MakeLock) -> None:
    with pytest.raises(LockNotOwnedError):
        async with block(make("foo", timeout=0.1)) as lock:
            await lost(lock)


async def test_block_that_outlives_its_lock_warns_if_configured(
    make: MakeLock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "holdfast.compat"):
        async with block(make("foo", timeout=0.1, raise_on_release_error=False)) as lock:
            await lost(lock)
    assert "lock 'foo' was released or lost before its block ended" in caplog.text


async def test_block_whose_lock_was_released_inside_raises(make: MakeLock) -> None:
    with pytest.raises(LockError):
        async with block(make("foo", timeout=5)) as lock:
            await done(lock.release())
    async with block(make("foo", timeout=5, raise_on_release_error=False)) as lock:
        await done(lock.release())


async def test_error_of_the_body_is_not_replaced_by_a_release_error(make: MakeLock) -> None:
    async def fail() -> None:
        async with block(make("foo", timeout=0.1)) as lock:
            await lost(lock)
            raise KeyError("the body's own")

    with pytest.raises(KeyError) as caught:
        await fail()
    assert any("was lost" in note for note in caught.value.__notes__)


async def test_releasing_a_lock_that_is_not_held_raises(make: MakeLock) -> None:
    with pytest.raises(LockError):
        await done(make("foo").release())


async def test_releasing_a_lock_taken_by_another_client_raises_and_clears_it(make: MakeLock, server: Any) -> None:
    lock = make("foo")
    await done(lock.acquire(blocking=False))
    server.set("foo", "a")
    with pytest.raises(LockNotOwnedError):
        await done(lock.release())
    assert lock.local.token is None
    assert server.get("foo") == b"a"


async def test_extend_adds_to_the_ttl(make: MakeLock, server: Any) -> None:
    lock = make("foo", timeout=10)
    assert await done(lock.acquire(blocking=False))
    assert await done(lock.extend(10)) is True
    assert 18_000 < server.pttl("foo") <= 20_000
    assert await done(lock.extend(10.5)) is True
    assert 28_000 < server.pttl("foo") <= 30_500
    await done(lock.release())


async def test_extend_with_replace_ttl_sets_the_ttl(make: MakeLock, server: Any) -> None:
    lock = make("foo", timeout=10)
    assert await done(lock.acquire(blocking=False))
    assert await done(lock.extend(20, replace_ttl=True)) is True
    assert 18_000 < server.pttl("foo") <= 20_000
    await done(lock.release())


async def test_extended_lock_outlives_its_timeout(make: MakeLock, server: Any) -> None:
    lock = make("foo", timeout=1.0)
    await done(lock.acquire())
    await done(lock.extend(30))
    assert not await done(lock.lease.lost.wait(1.1))
    assert await done(lock.owned())
    await done(lock.release())


async def test_reacquire_restores_the_ttl(make: MakeLock, server: Any) -> None:
    lock = make("foo", timeout=10)
    assert await done(lock.acquire(blocking=False))
    assert server.pexpire("foo", 5000)
    assert await done(lock.reacquire()) is True
    assert 8000 < server.pttl("foo") <= 10_000
    await done(lock.release())


@pytest.mark.parametrize("call", ["extend", "reacquire"])
class TestExtending:
    async def test_extending_a_lock_that_is_not_held_raises(self, make: MakeLock, call: str) -> None:
        with pytest.raises(LockError):
            await self._call(make("foo", timeout=10), call)

    async def test_extending_a_lock_without_a_timeout_raises(self, make: MakeLock, call: str) -> None:
        async with block(make("foo")) as lock:
            with pytest.raises(LockError, match="no timeout"):
                await self._call(lock, call)

    async def test_extending_a_lock_taken_by_another_client_raises(
        self, make: MakeLock, server: Any, call: str
    ) -> None:
        lock = make("foo", timeout=10)
        assert await done(lock.acquire(blocking=False))
        server.set("foo", "a")
        with pytest.raises(LockNotOwnedError):
            await self._call(lock, call)
        assert server.get("foo") == b"a"

    async def _call(self, lock: Any, call: str) -> Any:
        return await done(lock.extend(10) if call == "extend" else lock.reacquire())


async def test_token_given_by_the_caller_is_refused(make: MakeLock, server: Any) -> None:
    with pytest.raises(errors.UsageError, match="token="):
        await done(make("foo").acquire(token="test"))
    assert not server.exists("foo")


@pytest.mark.parametrize("name", [b"foo", memoryview(b"foo")])
async def test_name_as_bytes_is_accepted(make: MakeLock, server: Any, name: Any) -> None:
    async with block(make(name)):
        assert server.exists("foo")


@pytest.mark.parametrize("name", [12, 0, 10**12, 1.5])
async def test_name_as_a_number_is_the_key_that_redis_py_would_use(make: MakeLock, server: Any, name: Any) -> None:
    async with block(make(name)):
        assert server.exists(name)


async def test_infinite_blocking_timeout_equals_none(make: MakeLock) -> None:
    async with block(make("foo", blocking_timeout=float("inf"))):
        assert await done(make("foo", blocking=False).acquire(blocking_timeout=float("inf"))) is False


@pytest.mark.parametrize("module", [redis_py, redis_py_asyncio])
async def test_clients_of_the_compat_package_create_these_locks(module: Any, redis_url: str) -> None:
    client = module.Redis.from_url(redis_url)
    async with block(client.lock("foo", timeout=5)) as lock:
        assert type(lock) is module.Lock
    theirs: Any = redis if module is redis_py else redis.asyncio
    assert type(client.lock("foo", lock_class=theirs.lock.Lock)) is theirs.lock.Lock
