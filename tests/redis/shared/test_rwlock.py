"""Read-write locks at the engine: who is granted what, in which order, and what is left behind."""

from __future__ import annotations

import functools
import threading
import time
from typing import Any

import pytest

from holdfast._runtime import clock
from holdfast._runtime.blocking import run
from holdfast.engines.base import READ, WRITE, Busy, Found, Mode, permits
from holdfast.engines.redis.attempt import RedisAttempt
from holdfast.engines.redis.dialect.keys import shared_keys_of
from holdfast.engines.redis.session import RedisSession
from holdfast.errors import EngineRefused
from tests.redis.shared.claims import endless, granted, queue_up
from tests.redis.support import LATE, TIMEOUT, Other, command, dies_waiting, keeper_of, make_attempt, sync_and_async
from tests.servers.redis import RedisServer
from tests.support.waiting import eventually

NAME = "job"


def attempt(mode: Mode, ttl: float = 30.0) -> RedisAttempt:
    return make_attempt(NAME, ttl, mode=mode)


@sync_and_async
async def test_readers_share_and_exclude_a_writer(session: RedisSession, server: RedisServer) -> None:
    first, second, writer = attempt(READ), attempt(READ), attempt(WRITE)
    assert await granted(session, first) == await granted(session, second), "a reader has the last token"
    assert isinstance(await session.acquire(writer, TIMEOUT), Busy)
    assert await session.release(first, TIMEOUT) is Found.OURS
    assert isinstance(await session.acquire(writer, TIMEOUT), Busy)
    assert await session.release(second, TIMEOUT) is Found.OURS
    assert await granted(session, writer) > 0
    for other in (attempt(READ), attempt(WRITE)):
        assert isinstance(await session.acquire(other, TIMEOUT), Busy)
    assert endless(server) == []
    assert await session.release(writer, TIMEOUT) is Found.OURS
    assert server.client().keys() == [b"redisson_lock_token:{job}"]


@sync_and_async
async def test_layout_is_that_of_redisson(session: RedisSession, server: RedisServer) -> None:
    client: Any = server.client()
    writer = attempt(WRITE)
    token = await granted(session, writer)
    nested = session.nested(attempt(READ).claim, writer)
    assert await granted(session, nested) == token, "downgrading keeps the token"
    fields = {b"mode": b"write", f"{writer.owner}:write".encode(): b"1", nested.owner.encode(): b"1"}
    assert client.hgetall(NAME) == fields
    assert 29_000 < client.pttl(f"{{job}}:{nested.owner}:rwlock_timeout:1") <= 30_000
    listener = client.pubsub()
    listener.subscribe("redisson_rwlock:{job}")
    assert eventually(lambda: (listener.get_message() or {}).get("type") == "subscribe")
    assert await session.release(writer, TIMEOUT) is Found.OURS
    assert client.hgetall(NAME) == {b"mode": b"read", nested.owner.encode(): b"1"}
    assert eventually(listener.get_message)["data"] == b"1"
    assert await session.release(nested, TIMEOUT) is Found.OURS
    assert eventually(listener.get_message)["data"] == b"0"
    listener.close()


@sync_and_async
async def test_writer_gets_a_larger_token_than_all_before(session: RedisSession, server: RedisServer) -> None:
    tokens = []
    for mode in (READ, WRITE, READ, WRITE, READ):
        holder = attempt(mode)
        tokens.append(await granted(session, holder))
        await session.release(holder, TIMEOUT)
    assert tokens[0] < tokens[1] == tokens[2] < tokens[3] == tokens[4]


@sync_and_async
async def test_reader_does_not_pass_a_waiting_writer(session: RedisSession, server: RedisServer) -> None:
    first, writer, late = attempt(READ), attempt(WRITE), attempt(READ)
    await granted(session, first)
    waiting = await queue_up(session, writer)
    assert isinstance(await session.acquire(late, TIMEOUT), Busy)
    behind = await queue_up(session, late)
    await session.release(first, TIMEOUT)
    assert isinstance(await session.acquire(late, TIMEOUT), Busy), "the writer is first, though the lock is free"
    await granted(session, writer)
    await session.release(writer, TIMEOUT)
    await granted(session, late)
    for each in (waiting, behind):
        each.abandon()
    assert server.client().keys("holdfast_queue:*") == []


@sync_and_async
async def test_read_inside_ones_own_write_passes_a_waiting_writer(session: RedisSession, server: RedisServer) -> None:
    writer, other = attempt(WRITE), attempt(WRITE)
    await granted(session, writer)
    waiting = await queue_up(session, other)
    nested = session.nested(attempt(READ).claim, writer)
    await granted(session, nested)
    await session.release(writer, TIMEOUT)
    assert isinstance(await session.acquire(other, TIMEOUT), Busy), "no writer between the write and the read"
    await session.release(nested, TIMEOUT)
    await granted(session, other)
    waiting.abandon()


@sync_and_async
async def test_writer_that_died_waiting_is_passed_over_within_two_seconds(
    session: RedisSession, server: RedisServer
) -> None:
    holder, dead, late = attempt(READ), attempt(WRITE), attempt(READ)
    await granted(session, holder)
    (await queue_up(session, dead)).abandon()
    dies_waiting(server, NAME, dead.waiter)
    began = clock.now()
    contender = await queue_up(session, late)
    while isinstance(await session.acquire(late, TIMEOUT), Busy):
        await contender.wait(clock.now() + 10)
    assert clock.now() - began < 0.1 + LATE
    contender.abandon()


@pytest.mark.usefixtures("only_woken")
@sync_and_async
async def test_writer_that_gives_up_wakes_the_readers_behind_it(session: RedisSession, server: RedisServer) -> None:
    holder, writer, late = attempt(READ), attempt(WRITE), attempt(READ)
    with Other(server.url) as other:
        run(other.session.acquire(holder, TIMEOUT))
        contender = run(queue_up(other.session, writer))
        behind = await queue_up(session, late)
        leaving = threading.Timer(0.05, lambda: run(contender.leave()))
        leaving.start()
        while isinstance(await session.acquire(late, TIMEOUT), Busy):
            await behind.wait(clock.now() + 10)
        leaving.join()
        assert late.waiter is None
        behind.abandon()


@sync_and_async
async def test_repeated_acquire_is_one_hold(session: RedisSession, server: RedisServer) -> None:
    for mode in (READ, WRITE):
        holder = attempt(mode, ttl=10.0)
        token = await granted(session, holder)
        holder.claim = holder.claim._replace(ttl=60.0)
        assert await granted(session, holder) == token
        assert server.client().hlen(NAME) == 2
        assert server.client().pttl(NAME) > 50_000
        holder.claim = holder.claim._replace(ttl=5.0)
        assert await granted(session, holder) == token
        assert server.client().pttl(NAME) > 50_000, "never shortened"
        assert await session.release(holder, TIMEOUT) is Found.OURS
        assert await session.release(holder, TIMEOUT) is Found.GONE


@sync_and_async
async def test_late_duplicate_of_a_withdrawn_claim_is_refused(session: RedisSession, server: RedisServer) -> None:
    for mode in (READ, WRITE):
        holder = attempt(mode)
        await granted(session, holder)
        assert await keeper_of(session).withdraw([holder], TIMEOUT) == [Found.OURS]
        assert isinstance(await session.acquire(holder, TIMEOUT), Busy)
        assert not server.client().exists(NAME)
        assert endless(server) == []


@sync_and_async
async def test_lock_lasts_as_long_as_its_longest_reader(session: RedisSession, server: RedisServer) -> None:
    client, short, long = server.client(), attempt(READ, ttl=10.0), attempt(READ, ttl=100.0)
    await granted(session, long)
    await granted(session, short)
    assert client.pttl(NAME) > 90_000
    await session.release(long, TIMEOUT)
    assert 5_000 < client.pttl(NAME) <= 10_000
    assert client.hget("holdfast_holders:{job}", long.owner) is None


@sync_and_async
async def test_reader_under_a_write_leaves_the_ttl(session: RedisSession, server: RedisServer) -> None:
    writer = attempt(WRITE, ttl=100.0)
    await granted(session, writer)
    nested = session.nested(attempt(READ, ttl=1.0).claim, writer)
    await granted(session, nested)
    await session.release(nested, TIMEOUT)
    assert server.client().pttl(NAME) > 90_000


@sync_and_async
async def test_renewal_extends_the_hold_and_its_time_out_key(session: RedisSession, server: RedisServer) -> None:
    client, reader, other, writer = server.client(), attempt(READ, 1.0), attempt(READ), attempt(WRITE)
    await granted(session, reader)
    key = shared_keys_of(NAME).timeout_of(reader.owner)
    keeper = keeper_of(session)
    assert await keeper.renew([reader, other, writer], 60.0, TIMEOUT) == [Found.OURS, Found.GONE, Found.STOLEN]
    assert client.pttl(NAME) > 50_000
    assert client.pttl(key) > 50_000
    client.delete(key)  # evicted
    assert await keeper.renew([reader], 60.0, TIMEOUT) == [Found.OURS]
    assert client.pttl(key) > 50_000, "without it, releases of others overlook this reader"
    await session.release(reader, TIMEOUT)
    assert await keeper.renew([reader], 60.0, TIMEOUT) == [Found.GONE]
    await granted(session, writer)
    assert await keeper.renew([reader, writer], 60.0, TIMEOUT) == [Found.STOLEN, Found.OURS]


@sync_and_async
async def test_kinds_do_not_mix_under_one_name(session: RedisSession, server: RedisServer) -> None:
    holders = {"lock": make_attempt(NAME), "rwlock": attempt(READ), "semaphore": attempt(permits(1, 2))}
    for found, holder in holders.items():
        await granted(session, holder)
        for wanted, other in holders.items():
            if wanted != found:
                with pytest.raises(EngineRefused, match=f"in use as a {found}, not as a {wanted}"):
                    await session.acquire(other, TIMEOUT)
        await session.release(holder, TIMEOUT)
        server.flush()


@sync_and_async
async def test_free_plain_lock_costs_no_further_command(session: RedisSession, server: RedisServer) -> None:
    holder = make_attempt(NAME)
    await granted(session, holder)
    await session.release(holder, TIMEOUT)
    command(server, "CONFIG", "RESETSTAT")
    await granted(session, make_attempt(NAME))
    stats = server.client().info("commandstats")
    assert "cmdstat_hexists" not in stats
    assert "cmdstat_hmget" not in stats


@sync_and_async
async def test_inspect_shows_modes_and_queue(session: RedisSession, server: RedisServer) -> None:
    reader, writer, late = attempt(READ), attempt(WRITE), attempt(READ)
    token = await granted(session, reader)
    waiting, behind = await queue_up(session, writer), await queue_up(session, late)
    state = await session.inspect(NAME, TIMEOUT)
    assert (state.kind, state.waiters, state.token) == ("rwlock", 2, token)
    assert [(holder.owner, holder.mode, holder.count) for holder in state.holders] == [(reader.owner, "read", 1)]
    assert [(each.owner, each.mode) for each in state.queue] == [(writer.owner, "write"), (late.owner, "read")]
    assert [name async for name in session.names("", TIMEOUT)] == [NAME]
    for each in (waiting, behind):
        await each.leave()


@sync_and_async
async def test_break_takes_the_lock_from_every_holder(session: RedisSession, server: RedisServer) -> None:
    readers = [attempt(READ) for _ in range(3)]
    token = max([await granted(session, reader) for reader in readers])
    assert not await session.break_(NAME, TIMEOUT, token=token - 1)
    assert await session.break_(NAME, TIMEOUT, token=token)
    assert await keeper_of(session).renew(readers, 30.0, TIMEOUT) == [Found.GONE] * 3
    assert not await session.break_(NAME, TIMEOUT, token=token)
    late = attempt(READ)
    assert await granted(session, late) > token
    assert await session.break_(NAME, TIMEOUT)
    assert endless(server) == []


@sync_and_async
async def test_break_by_token_leaves_holders_with_another(session: RedisSession, server: RedisServer) -> None:
    writer, late = attempt(WRITE), attempt(READ)
    token = await granted(session, writer)
    nested = session.nested(attempt(READ).claim, writer)
    await granted(session, nested)
    command(server, "SET", "redisson_lock_token:{job}", token + 5)
    await session.release(writer, TIMEOUT)
    await granted(session, late)
    assert await session.break_(NAME, TIMEOUT, token=token)
    keeper = keeper_of(session)
    assert await keeper.renew([nested, late], 30.0, TIMEOUT) == [Found.GONE, Found.OURS]


@sync_and_async
async def test_name_with_braces_has_its_keys_in_one_slot(session: RedisSession, server: RedisServer) -> None:
    reader = make_attempt("a{b}", mode=READ)
    await granted(session, reader)
    assert set(server.client().scan_iter("*rwlock_timeout*")) == {f"a{{b}}:{reader.owner}:rwlock_timeout:1".encode()}
    assert await session.release(reader, TIMEOUT) is Found.OURS


@pytest.mark.parametrize("readers", [3])
def test_threads_that_read_and_write_exclude_each_other(readers: int, redis_server: RedisServer) -> None:
    """Every thread gets its turns, and no writer is ever beside another holder."""
    inside: dict[str, int] = {"read": 0, "write": 0}
    guard, wrong = threading.Lock(), list[str]()

    def work(mode: Mode, turns: int) -> None:
        with Other(redis_server.url) as other:
            for _ in range(turns):
                wanted = attempt(mode)
                contender = other.session.contender(wanted, TIMEOUT)
                while isinstance(run(other.session.acquire(wanted, TIMEOUT)), Busy):
                    run(contender.wait(clock.now() + 0.5))
                with guard:
                    inside[mode.label] += 1
                    if inside["write"] and (inside["write"] > 1 or inside["read"]):
                        wrong.append(str(inside))
                time.sleep(0)
                with guard:
                    inside[mode.label] -= 1
                run(other.session.release(wanted, TIMEOUT))
                contender.abandon()

    threads = [threading.Thread(target=functools.partial(work, READ, 20)) for _ in range(readers)]
    threads += [threading.Thread(target=functools.partial(work, WRITE, 10)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
