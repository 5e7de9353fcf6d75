"""``@holdfast.locked``: the default client is created at the first call, one per event loop."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import aio, default_clients


@pytest.fixture(autouse=True)
def _configured(url: str) -> Iterator[None]:
    holdfast.configure(url)
    yield
    holdfast.configure()
    default_clients._sync.clear()  # its threads would keep running


@holdfast.locked("{n}", prefix="sync")
def sync_work(n: int) -> str:
    return where()


@holdfast.locked("{n}", prefix="async")
async def async_work(n: int) -> str:
    await asyncio.sleep(0)
    return where()


@holdfast.locked
async def numbers() -> AsyncIterator[int]:
    yield 1


def where() -> str:
    lease = holdfast.current_lease()
    assert lease is not None
    assert lease.held
    return f"{lease.name} on {lease._holds[0].core.engine!r}"


def test_functions_use_the_sync_and_coroutines_the_async_default_client(url: str) -> None:
    store = f"<memory engine {url.removeprefix('memory:')!r}>"
    assert sync_work(1) == f"sync:1 on {store}"
    assert asyncio.run(async_work(1)) == f"async:1 on {store}"
    assert isinstance(sync_work.lock_for(1), holdfast.Lock)
    assert default_clients.sync_client() is default_clients.sync_client()


def test_configure_affects_later_calls_and_not_running_ones() -> None:
    async def other_store() -> None:
        lease = await async_work.lock_for(9).acquire()
        assert "memory engine 'second'" not in await async_work(1)
        holdfast.configure("memory:second")
        assert "memory engine 'second'" in await async_work(1)
        assert lease.held
        await lease.release()

    with sync_work.lock_for(9) as lease:
        before = sync_work(1)
        holdfast.configure("memory:first")
        assert "memory engine 'first'" in sync_work(1)
        assert "memory engine 'first'" not in before
        assert lease.held
    asyncio.run(other_store())


def test_successive_and_concurrent_loops_have_clients_of_their_own() -> None:
    results: list[str] = []

    async def several() -> None:
        await asyncio.gather(*(async_work(n) for n in range(5)))
        assert [n async for n in numbers()] == [1]
        results.append("ok")

    for _ in range(3):
        asyncio.run(several())
    threads = [threading.Thread(target=lambda: asyncio.run(several())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert results == ["ok"] * 7
    asyncio.run(several())
    assert not default_clients._async, "clients of closed loops stay behind"


def test_client_of_a_loop_is_closed_with_the_loop() -> None:
    """Otherwise its connections would be left to the garbage collector."""

    async def client() -> aio.AsyncClient:
        await async_work(1)
        return default_clients.async_client()

    assert asyncio.run(client())._closed


def test_async_lock_without_a_running_loop_is_refused() -> None:
    with pytest.raises(holdfast.UsageError, match="no event loop is running"):
        async_work.lock_for(1)


def test_first_call_checks_the_policy() -> None:
    @holdfast.locked("a", require={"cross_host"})
    def work() -> None: ...

    with pytest.raises(holdfast.UsageError, match="cross_host"):
        work()


def test_concurrent_first_calls_share_one_client() -> None:
    gate, clients = threading.Barrier(8), set()

    def first() -> None:
        gate.wait(10)
        clients.add(default_clients.sync_client())

    threads = [threading.Thread(target=first) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(clients) == 1


def test_forked_child_locks_with_its_own_client(tmp_path: Path) -> None:
    holdfast.configure(f"sqlite://{tmp_path}/locks.db")
    sync_work(1)
    child = os.fork()
    if child == 0:
        try:
            sync_work(1)
            asyncio.run(async_work(1))
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sync_work(2)


def test_decorating_imports_no_engine_no_driver_and_no_event_loop() -> None:
    code = """
import holdfast, json, sys
@holdfast.locked("{n}")
def work(n): pass
@holdfast.locked
def steps(): yield 1
print(json.dumps(sorted(sys.modules)))
holdfast.configure("memory:")
work(1)
assert "asyncio" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    loaded = done.stdout
    for module in ("asyncio", "redis", "kazoo", "sqlite3", "holdfast.engines", "holdfast.client"):
        assert f'"{module}"' not in loaded


def test_server_connections_are_closed_with_the_loop(redis_url: str) -> None:
    """Runs with warnings as errors, so an unclosed connection fails the test."""
    code = f"""
import asyncio, gc, holdfast
holdfast.configure({redis_url!r}, namespace="{uuid.uuid4().hex}")
@holdfast.locked("a")
async def work(): return holdfast.current_lease().token
@holdfast.locked("a")
def sync_work(): return holdfast.current_lease().token
tokens = [asyncio.run(work()), sync_work(), asyncio.run(work())]
assert tokens == sorted(tokens)
gc.collect()
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_loop_that_continues_after_closing_its_generators_gets_a_new_client() -> None:
    async def closing() -> str:
        await async_work(1)
        await asyncio.get_running_loop().shutdown_asyncgens()  # closes the default client of this loop
        return await async_work(1)

    assert asyncio.run(closing()).startswith("async:1 ")
