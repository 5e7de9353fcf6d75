"""Faults of redis-py's Lock that the replacement does not have."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from typing import Any

import pytest
import redis
import redis.asyncio
from redis import exceptions
from redis.exceptions import LockError, LockNotOwnedError

from holdfast import errors
from holdfast.compat.redis_py import Lock
from holdfast.compat.redis_py import asyncio as compat_asyncio
from tests.servers.ports import free_port
from tests.support.waiting import until


@pytest.fixture
def client(redis_url: str) -> Any:
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def async_client(redis_url: str) -> Any:
    return redis.asyncio.Redis.from_url(redis_url)


async def test_late_task_cannot_release_the_lock_of_another_task(async_client: Any, client: Any) -> None:
    lock = compat_asyncio.Lock(async_client, "stock", timeout=0.2)
    taken, released = asyncio.Event(), asyncio.Event()

    async def late() -> None:
        await lock.acquire()
        lease = lock.lease
        assert lease is not None
        await lease.lost.wait(5)
        await taken.wait()
        with pytest.raises(LockNotOwnedError):
            await lock.release()
        with pytest.raises(LockError):  # the second attempt does not release the other lock either
            await lock.release()
        released.set()

    async def next_holder() -> None:
        await lock.acquire()
        await lock.extend(30)
        taken.set()
        await released.wait()
        assert await lock.owned()
        await lock.release()

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(late())
        await asyncio.sleep(0)
        group.create_task(next_holder())


def test_late_thread_cannot_release_the_lock_of_another_thread(client: Any) -> None:
    lock = Lock(client, "stock", timeout=0.2, thread_local=False)
    lock.acquire()
    lease = lock.lease
    assert lease is not None
    assert lease.lost.wait(5)
    taken, released = threading.Event(), threading.Event()

    def next_holder() -> None:
        lock.acquire()
        lock.extend(30)
        taken.set()
        assert released.wait(20)
        assert lock.owned()
        lock.release()

    thread = threading.Thread(target=next_holder)
    thread.start()
    assert taken.wait(20)
    with pytest.raises(LockNotOwnedError):
        lock.release()
    released.set()
    thread.join()
    assert not lock.locked()


def test_thread_local_decides_whether_another_thread_may_release(client: Any) -> None:
    def release_elsewhere(lock: Lock) -> list[BaseException]:
        raised: list[BaseException] = []

        def release() -> None:
            try:
                lock.release()
            except LockError as error:
                raised.append(error)

        thread = threading.Thread(target=release)
        thread.start()
        thread.join()
        return raised

    own, shared = Lock(client, "own"), Lock(client, "shared", thread_local=False)
    own.acquire()
    shared.acquire()
    assert len(release_elsewhere(own)) == 1
    assert own.locked()
    assert release_elsewhere(shared) == []
    assert not shared.locked()
    own.release()


async def test_lock_acquired_in_an_ended_task_can_be_released(async_client: Any) -> None:
    lock = compat_asyncio.Lock(async_client, "stock")
    assert await asyncio.wait_for(lock.acquire(), 5)
    await lock.release()

    async def acquire() -> None:
        await lock.acquire()

    await asyncio.create_task(acquire())
    await lock.release()
    assert not await lock.locked()


async def test_call_wrapped_in_a_task_uses_the_lock_of_the_calling_task(
    async_client: Any,
) -> None:
    lock = compat_asyncio.Lock(async_client, "stock", timeout=30)
    assert await asyncio.shield(lock.acquire())
    assert await asyncio.create_task(lock.owned())
    assert all(await asyncio.gather(lock.extend(5), lock.reacquire()))
    await asyncio.shield(lock.release())
    assert await lock.acquire()
    await asyncio.wait_for(lock.release(), 5)
    assert not await lock.locked()


def test_lock_can_be_acquired_and_released_outside_of_tasks(redis_url: str) -> None:
    with asyncio.Runner() as runner:
        client = redis.asyncio.Redis.from_url(redis_url)
        lock = compat_asyncio.Lock(client, "stock")
        loop = runner.get_loop()
        assert loop.run_until_complete(lock.acquire())
        loop.run_until_complete(lock.release())
        loop.run_until_complete(client.aclose())


def test_one_lock_works_in_successive_asyncio_runs(redis_url: str, client: Any) -> None:
    shared = redis.asyncio.Redis.from_url(redis_url)
    lock, limited = compat_asyncio.Lock(shared, "stock"), compat_asyncio.Lock(shared, "hourly", timeout=30)

    async def use() -> None:
        async with lock, limited:
            assert await lock.owned()
        assert await lock.acquire()  # not released: asyncio.run does that
        await shared.aclose()

    for _ in range(3):
        asyncio.run(use())
        assert not client.exists("stock", "hourly")


def test_concurrent_loops_have_separate_locks_and_end_independently(redis_url: str) -> None:
    shared = redis.asyncio.Redis.from_url(redis_url)

    async def use() -> bool:
        lock = compat_asyncio.Lock(shared, "stock", timeout=30)
        taken = await lock.acquire(blocking=False)
        async with compat_asyncio.Lock(shared, "other", timeout=30):
            return taken

    async def main() -> None:
        async with compat_asyncio.Lock(shared, "stock", timeout=30) as lock:
            assert await asyncio.to_thread(lambda: asyncio.run(use())) is False
            assert await lock.owned()

    asyncio.run(main())


def test_forked_child_cannot_release_the_lock_of_its_parent(client: Any) -> None:
    lock = Lock(client, "stock")
    lock.acquire()
    child = os.fork()
    if child == 0:
        try:
            lock.release()
        except LockNotOwnedError:
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert lock.owned()
    lock.release()


def test_cancelled_acquire_leaves_no_lock(client: Any, async_client: Any) -> None:
    async def main() -> None:
        lock = compat_asyncio.Lock(async_client, "stock")
        other = compat_asyncio.Lock(async_client, "stock")
        await other.acquire()
        assert other.lease is not None
        hold = other.lease._hold
        waiting = asyncio.ensure_future(lock.acquire())
        await until(lambda: hold.core.queue.waiting(hold.policy.key) == 1, 5)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await other.release()
        assert await lock.acquire(blocking_timeout=5)
        await lock.release()

    asyncio.run(main())
    assert not client.exists("stock")


class TestBesideLocksOfRedisPy:
    """During a rolling deployment some processes still use redis-py's own Lock on the same names."""

    def test_lock_held_by_redis_py_is_busy(self, client: Any) -> None:
        old, new = client.lock("stock", timeout=30), Lock(client, "stock", sleep=0.01)
        with old:
            assert new.acquire(blocking=False) is False
            assert new.acquire(blocking_timeout=0.05) is False
            assert new.locked() is True
            assert new.owned() is False
        assert new.acquire(blocking=False) is True
        assert old.acquire(blocking=False) is False
        new.release()
        assert old.acquire(blocking=False) is True
        old.release()

    def test_old_and_new_locks_together_lose_no_update(self, redis_url: str, client: Any) -> None:
        def count(kind: Any) -> None:
            with redis.Redis.from_url(redis_url) as own:
                lock = kind(own, "stock", timeout=20, sleep=0.001)
                for _ in range(100):
                    with lock:
                        own.set("counter", int(own.get("counter") or 0) + 1)

        threads = [threading.Thread(target=count, args=(kind,)) for kind in (redis.lock.Lock, Lock) * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert client.get("counter") == b"400"

    async def test_asyncio_lock_waits_for_a_lock_of_redis_py(self, client: Any, async_client: Any) -> None:
        old = client.lock("stock", timeout=30)
        old.acquire()
        new = compat_asyncio.Lock(async_client, "stock", sleep=0.01)
        assert await new.locked() is True
        assert await new.owned() is False
        waiting = asyncio.ensure_future(new.acquire(blocking_timeout=20))
        await asyncio.sleep(0)
        old.release()
        assert await waiting is True
        await new.release()

    def test_waiting_for_a_lock_of_redis_py_leaves_no_key_per_poll(self, client: Any) -> None:
        with client.lock("stock", timeout=30):
            assert Lock(client, "stock", sleep=0.001, blocking_timeout=0.3).acquire() is False
            assert client.dbsize() <= 2  # the lock, and a tombstone of the one try

    async def test_asyncio_waiting_for_a_lock_of_redis_py_leaves_no_key_per_poll(
        self, client: Any, async_client: Any
    ) -> None:
        with client.lock("stock", timeout=30):
            assert (
                await compat_asyncio.Lock(async_client, "stock", sleep=0.001, blocking_timeout=0.3).acquire() is False
            )
            assert client.dbsize() <= 2  # the lock, and a tombstone of the one try


class TestLocksThatExpire:
    def test_dropped_lock_object_with_a_timeout_stays_locked(self, client: Any) -> None:
        Lock(client, "hourly", timeout=30).acquire()
        gc.collect()
        assert Lock(client, "hourly").acquire(blocking_timeout=0.3) is False
        assert client.pttl("hourly") > 25_000

    def test_expired_locks_of_ended_threads_do_not_accumulate(self, client: Any) -> None:
        lock = Lock(client, "often", timeout=0.1)
        for _ in range(5):
            thread = threading.Thread(target=lock.acquire)
            thread.start()
            thread.join()
            del thread
        assert len(lock._leases._kept) <= 2

    def test_dropped_lock_object_without_a_timeout_is_released(self, client: Any) -> None:
        lock = Lock(client, "stock")
        lock.acquire()
        held = [lock]
        del lock
        with pytest.warns(ResourceWarning, match="dropped without release"):
            held.clear()
        other = Lock(client, "stock")
        assert other.acquire(blocking_timeout=10) is True
        other.release()

    @pytest.mark.parametrize("face", ["sync", "asyncio"])
    def test_program_exit_keeps_a_lock_with_a_timeout_and_releases_one_without(
        self, client: Any, redis_url: str, face: str
    ) -> None:
        sync = (
            "import sys, redis; from holdfast.compat.redis_py import Lock\n"
            "r = redis.Redis.from_url(sys.argv[1])\n"
            "lock = Lock(r, 'stock'); assert Lock(r, 'hourly', timeout=30).acquire() and lock.acquire()\n"
        )
        asyncio_ = (
            "import sys, asyncio, redis.asyncio; from holdfast.compat.redis_py.asyncio import Lock\n"
            "r = redis.asyncio.Redis.from_url(sys.argv[1]); lock = Lock(r, 'stock')\n"
            "async def main():\n"
            "    assert await Lock(r, 'hourly', timeout=30).acquire() and await lock.acquire()\n"
            "    await r.aclose()\n"
            "asyncio.run(main())\n"
        )
        program = [sys.executable, "-c", sync if face == "sync" else asyncio_, redis_url]
        ended = subprocess.run(program, capture_output=True, text=True, timeout=50)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert client.exists("stock") == 0
        assert client.pttl("hourly") > 20_000


def test_error_classes_are_those_of_redis_py() -> None:
    with redis.Redis(port=free_port()) as unreachable:
        lock = Lock(unreachable, "stock", blocking_timeout=0.2)
        with pytest.raises(exceptions.ConnectionError):
            lock.acquire()
        with pytest.raises(exceptions.ConnectionError):
            lock.locked()


def test_redis_client_and_locks_are_collected_together(redis_url: str) -> None:
    import weakref

    client = redis.Redis.from_url(redis_url)
    lock = Lock(client, "stock")
    with lock:
        pass
    client.close()
    dead = weakref.ref(client), weakref.ref(lock._client)
    del client, lock
    gc.collect()
    assert [reference() for reference in dead] == [None, None]


def test_wrong_password_is_not_taken_for_a_busy_lock(redis_url: str) -> None:
    stranger = redis.Redis.from_url(redis_url, username="unknown", password="wrong")
    with stranger, pytest.raises(exceptions.AuthenticationError) as caught:
        Lock(stranger, "stock").acquire(blocking=False)
    assert not isinstance(caught.value, LockError)


def test_missing_right_is_not_taken_for_a_busy_lock(redis_url: str, client: Any) -> None:
    client.acl_setuser("limited", enabled=True, passwords=["+secret"], keys=["*"], commands=["+@all", "-@scripting"])
    try:
        limited = redis.Redis.from_url(redis_url, username="limited", password="secret")
        with limited, pytest.raises(exceptions.NoPermissionError):
            Lock(limited, "stock").acquire(blocking=False)
    finally:
        client.acl_deluser("limited")


@pytest.mark.parametrize("name", ["do_acquire", "do_release", "register_scripts", "LUA_RELEASE_SCRIPT"])
@pytest.mark.parametrize("kind", [Lock, compat_asyncio.Lock])
def test_subclass_that_overrides_internals_of_redis_py_is_refused(kind: type, name: str) -> None:
    with pytest.raises(errors.UsageError, match=rf"Mine defines {name}.*override acquire\(\)"):
        type("Mine", (kind,), {name: None})


def test_subclass_may_override_acquire_and_release(client: Any) -> None:
    calls: list[str] = []

    class Mine(Lock):
        def acquire(self, *args: Any, **keywords: Any) -> bool:
            calls.append("acquire")
            return super().acquire(*args, **keywords)

        def release(self) -> None:
            calls.append("release")
            super().release()

    with client.lock("stock", lock_class=Mine):
        pass
    assert calls == ["acquire", "release"]
