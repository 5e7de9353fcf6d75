"""Many waiters of one client that sleep: how many requests that takes, and that all of them stay present."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, Final

import pytest

import holdfast
from holdfast._core import shared_looks, states
from holdfast.engines.registers import Standing
from tests.servers.redis import RedisServer
from tests.support.register_contract import TIMEOUT, World, check, engine_at
from tests.support.soak import soak
from tests.support.waiting import eventually, until

#: In place of a second (s).
LOOK: Final = 0.1
#: What is counted is what is sent in this time (s).
MEANWHILE: Final = 0.4


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_looks, "_LOOK", LOOK)


def scripts_run(probe: Any) -> int:
    return int(probe.info("commandstats")["cmdstat_evalsha"]["calls"])


def is_parked(lease: Any) -> bool:
    return bool(lease._hold.state is states.PARKED)


def check_count(calls: int, seconds: float, waiters: int) -> None:
    assert calls >= 1
    assert calls <= 2 * seconds / LOOK + 5, f"{waiters} waiters have sent {calls} requests in {seconds:.2f} s"


@pytest.mark.parametrize("count", [40, soak(200, reason="a queue that is too long for a quick test")])
def test_sleeping_tasks_of_one_client_send_one_request_for_all(count: int, redis_server: RedisServer) -> None:
    async def main() -> None:
        async with holdfast.aio.connect(redis_server.url) as client:
            lock, probe = client.lock("a"), redis_server.client()
            leases: list[Any] = []

            async def wait() -> None:
                async with lock as lease:
                    leases.append(lease)
                    await client.condition(lock).wait()

            tasks = [asyncio.create_task(wait()) for _ in range(count)]
            await until(lambda: len(leases) == count and all(map(is_parked, leases)), 30.0)
            before, started = scripts_run(probe), time.monotonic()
            await asyncio.sleep(MEANWHILE)
            check_count(scripts_run(probe) - before, time.monotonic() - started, len(tasks))
            assert (await lock.inspect()).conditions == {"": count}, "all are present"
            async with lock:
                await client.condition(lock).notify_all()
            await asyncio.gather(*tasks)

    asyncio.run(main())


def test_sleeping_threads_of_one_client_send_one_request_for_all(redis_server: RedisServer) -> None:
    with holdfast.connect(redis_server.url) as client:
        lock, probe = client.lock("a"), redis_server.client()
        leases: list[Any] = []

        def wait() -> None:
            with lock as lease:
                leases.append(lease)
                client.condition(lock).wait()

        threads = [threading.Thread(target=wait) for _ in range(20)]
        for thread in threads:
            thread.start()
        eventually(lambda: len(leases) == len(threads) and all(map(is_parked, leases)), 30.0)
        eventually(lambda: not lock.inspect().holders, 30.0)
        before, started = scripts_run(probe), time.monotonic()
        time.sleep(MEANWHILE)
        check_count(scripts_run(probe) - before, time.monotonic() - started, len(threads))
        assert lock.inspect().conditions == {"": len(threads)}
        with lock:
            client.condition(lock).notify_all()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()


def test_one_look_for_more_waiters_than_a_command_of_a_script_can_have(redis_server: RedisServer) -> None:
    async def case(world: World) -> None:
        key = world.key()
        many = [f"{number:016x}" for number in range(2500)]
        await world.enqueue(key, "=" + ",".join(f"{waiter}:W" for waiter in many))
        looks = await world.registers.look_all(key, many, TIMEOUT)
        assert {looks[waiter].standing for waiter in many} == {Standing.WAITING}
        assert (await world.others.peek(key, TIMEOUT)).present == set(many)

    check(case, engine_at(redis_server.url), "sync")
