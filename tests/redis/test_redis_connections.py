"""Connections refused, lost, killed, frozen, cancelled, forked: errors state correctly what may have happened."""

from __future__ import annotations

import asyncio
import pickle
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from hiredis import ReplyError

from holdfast._runtime import clock
from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import Busy, Found, Granted, RequestFailed
from holdfast.engines.redis.connections.aio import AsyncioChannel
from holdfast.engines.redis.connections.wire import Wire
from holdfast.engines.redis.engine import connect
from holdfast.engines.redis.session import RedisSession
from holdfast.errors import EngineRefused
from tests.redis.support import LATE, TIMEOUT, Other, command, connections, make_attempt, on_api, sync_and_async
from tests.servers.redis import RedisServer
from tests.support.calls import Later
from tests.support.clients import APIS
from tests.support.forking import in_a_child
from tests.support.leaks import descriptors
from tests.support.waiting import eventually

StartRedis = Callable[..., RedisServer]


def failure_of(api: str, url: str, timeout: float = TIMEOUT) -> BaseException:
    caught: list[BaseException] = []

    async def body(session: RedisSession) -> None:
        with pytest.raises((RequestFailed, EngineRefused)) as error:
            await session.ping(timeout)
        caught.append(error.value)

    on_api(api, url, body)
    return caught[0]


def arrived(server: RedisServer) -> Callable[[], bool]:
    """Whether a request has reached a paused server."""
    client = server.client()
    return lambda: bool(client.info("clients")["blocked_clients"] == 1)


@APIS
def test_missing_server_is_unreachable_and_nothing_happened(api: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    failure = failure_of(api, f"redis://:s3cr3t@127.0.0.1:{port}/0")
    assert isinstance(failure, RequestFailed)
    assert failure.may_have_happened is False
    assert "s3cr3t" not in repr(failure)
    assert f"127.0.0.1:{port}" in str(failure)


@APIS
def test_wrong_password_is_refused_immediately_and_not_retried(api: str, start_redis: StartRedis) -> None:
    server = start_redis(password="right")
    for user_info in (":s3cr3t@", "other:s3cr3t@", ""):
        failure = failure_of(api, f"redis://{user_info}127.0.0.1:{server.port}/0")
        assert isinstance(failure, EngineRefused), failure
        cause: BaseException | None = failure
        while cause is not None:
            assert "s3cr3t" not in repr(cause)
            cause = cause.__cause__ or cause.__context__
        assert "s3cr3t" not in str(pickle.loads(pickle.dumps(failure)))


@APIS
def test_user_without_permission_is_refused(api: str, redis_server: RedisServer) -> None:
    admin = redis_server.client()
    command(redis_server, "ACL", "SETUSER", "poor", "on", ">pw", "~*", "+@all", "-evalsha")
    failure = failure_of(api, redis_server.url_as("poor", "pw"))
    assert isinstance(failure, EngineRefused)
    assert "NOPERM" in str(failure)
    admin.acl_deluser("poor")


@APIS
def test_smallest_acl_suffices(api: str, redis_server: RedisServer) -> None:
    admin = redis_server.client()
    commands = (
        "+hello +evalsha +eval +exists +get +set +del +hset +hexists +hlen +hgetall +pttl +pexpire +time "
        "+lindex +lpop +lrem +lpos +lrange +rpush +publish +type"
    )
    keys = "~app:* ~redisson_lock_token:{app:* ~holdfast_*:{app:*"
    command(redis_server, "ACL", "SETUSER", "least", "on", ">pw", *keys.split(), "-@all", *commands.split())

    async def body(session: RedisSession) -> None:
        await session.ping(TIMEOUT)
        attempt, late = make_attempt("app:job"), make_attempt("app:job")
        assert isinstance(await session.acquire(attempt, TIMEOUT), Granted)
        assert await session.renew(attempt, 40.0, TIMEOUT) == Found.OURS
        contender = session.contender(late, TIMEOUT)
        await contender.wait(session._runtime.now() + 0.05)
        assert (await session.inspect("app:job", TIMEOUT)).waiters == 1
        await contender.leave()
        # Not even its channel is allowed: the lock is released nevertheless.
        assert await session.release(attempt, TIMEOUT) is Found.OURS
        with pytest.raises(EngineRefused, match="NOPERM"):
            await session.acquire(make_attempt("elsewhere"), TIMEOUT)

    on_api(api, f"{redis_server.url_as('least', 'pw')}?client_name=mine", body)
    admin.acl_deluser("least")


@APIS
def test_request_to_a_frozen_server_may_have_happened(api: str, start_redis: StartRedis) -> None:
    server = start_redis()

    async def body(session: RedisSession) -> None:
        await session.ping(TIMEOUT)
        server.pause()
        attempt = make_attempt("job")
        began = time.monotonic()
        with pytest.raises(RequestFailed) as failure:
            await session.acquire(attempt, 0.3)
        assert 0.25 < time.monotonic() - began < 0.3 + LATE
        assert failure.value.may_have_happened is True
        with pytest.raises(RequestFailed) as failure:
            await session.acquire(attempt, 0.3)  # not even the handshake completes
        assert failure.value.may_have_happened is False
        server.resume()
        # The connection was reset at the timeout; the server may have read the request before and granted the same
        # claim.
        assert isinstance(await session.acquire(attempt, TIMEOUT), Granted)

    on_api(api, server.url, body)


@sync_and_async
async def test_request_may_have_happened_if_the_connection_is_lost_after_sending(
    session: RedisSession, server: RedisServer
) -> None:
    await session.ping(TIMEOUT)
    client = server.client()
    command(server, "CLIENT", "PAUSE", 10_000, "WRITE")
    later = Later(arrived(server), lambda: client.client_kill_filter(skipme=True))
    with pytest.raises(RequestFailed) as failure:
        await session.acquire(make_attempt("job"), TIMEOUT)
    later.join()
    command(server, "CLIENT", "UNPAUSE")
    assert failure.value.may_have_happened is True
    assert "in time" not in str(failure.value)


@APIS
def test_restarted_server_is_reconnected(api: str, start_redis: StartRedis) -> None:
    server = start_redis()

    async def body(session: RedisSession) -> None:
        attempt = make_attempt("job")
        await session.acquire(attempt, TIMEOUT)
        server.restart()
        outcome: Any = None
        for _ in range(2):  # one request may find the old connection closed
            try:
                outcome = await session.release(attempt, TIMEOUT)
                break
            except RequestFailed:
                continue
        assert outcome is Found.GONE
        assert isinstance(await session.acquire(attempt, TIMEOUT), Granted)

    on_api(api, server.url, body)


@sync_and_async
async def test_flushed_scripts_are_loaded_again(session: RedisSession, server: RedisServer) -> None:
    attempt = make_attempt("job")
    assert isinstance(await session.acquire(attempt, TIMEOUT), Granted)
    for operation in (session.renew(attempt, 30.0, TIMEOUT), session.release(attempt, TIMEOUT)):
        server.client().script_flush()
        assert await operation is Found.OURS


def test_script_that_the_server_keeps_forgetting_is_sent_twice_at_most(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[bytes] = []

    def forgets(wire: Wire, packed: bytes, timeout: float, now: float) -> ReplyError:
        sent.append(packed)
        return ReplyError("NOSCRIPT No matching script")

    async def body(session: RedisSession) -> None:
        monkeypatch.setattr(Wire, "call", forgets)
        with pytest.raises(EngineRefused, match="NOSCRIPT"):
            await session.ping(TIMEOUT)

    on_api("sync", redis_server.url, body)
    assert [b"EVALSHA" in packed for packed in sent] == [True, False]


@sync_and_async
async def test_killed_connection_fails_one_request(session: RedisSession, server: RedisServer) -> None:
    await session.ping(TIMEOUT)
    server.client().client_kill_filter(skipme=True)
    attempt = make_attempt("job")
    try:
        answer = await session.acquire(attempt, TIMEOUT)
    except RequestFailed:
        answer = await session.acquire(attempt, TIMEOUT)
    assert isinstance(answer, Granted)


def test_dead_idle_connection_fails_no_request(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.engines.redis.connections.blocking._REST", 0.0)
    with Other(redis_server.url) as other:
        threads = [threading.Thread(target=lambda: run(other.session.ping(TIMEOUT))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(5)
        for wire in other.session._channel._idle:  # type: ignore[attr-defined]
            redis_server.client().client_kill_filter(skipme=True)
            eventually(wire.is_dead)
        run(other.session.ping(TIMEOUT))


def test_idle_connections_are_few(redis_server: RedisServer) -> None:
    count = connections(redis_server, "few")
    with Other(f"{redis_server.url}?client_name=few") as other:
        barrier = threading.Barrier(24)

        def wait_then_ping() -> None:
            barrier.wait(5)
            contender = other.session.contender(make_attempt("job"), TIMEOUT)
            run(contender.wait(other.session._runtime.now() + 0.01))
            run(contender.leave())

        threads = [threading.Thread(target=wait_then_ping) for _ in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        run(other.session.ping(TIMEOUT))
        assert len(other.session._channel._idle) <= 16  # type: ignore[attr-defined]
        eventually(lambda: 1 <= count() <= 17)
    eventually(lambda: count() == 0)


@APIS
def test_close_leaves_no_open_connection(api: str, redis_server: RedisServer) -> None:
    count = connections(redis_server, "brief")

    async def body(session: RedisSession) -> None:
        await session.ping(TIMEOUT)
        await session.renew(make_attempt("job"), 30.0, TIMEOUT)
        assert count() == 1
        await session.close()
        eventually(lambda: count() == 0)
        with pytest.raises(RequestFailed) as failure:
            await session.ping(TIMEOUT)
        assert failure.value.may_have_happened is False

    on_api(api, f"{redis_server.url}?client_name=brief", body)


def test_after_close_a_keeper_leaves_nothing_open(redis_server: RedisServer) -> None:
    count, wakeup = connections(redis_server, "keeper"), BLOCKING.wakeup()
    keeper = connect(f"{redis_server.url}?client_name=keeper", {}).keeper(BLOCKING)
    run(keeper.wait_for_hints(clock.now(), wakeup))
    run(keeper.renew([make_attempt("job")], 30.0, TIMEOUT))
    assert count() == 1
    run(keeper.close())
    eventually(lambda: count() == 0)
    wakeup.close()


def test_reply_of_an_interrupted_request_is_not_given_to_the_next(redis_server: RedisServer) -> None:
    """Ctrl-C between request and reply: the connection must not be reused."""

    class Interrupted(BaseException):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    with Other(redis_server.url) as other:
        held = other.hold("job")
        command(redis_server, "CLIENT", "PAUSE", 10_000, "WRITE")
        before = signal.signal(signal.SIGALRM, interrupt)
        caller = threading.get_ident()
        later = Later(arrived(redis_server), lambda: signal.pthread_kill(caller, signal.SIGALRM))
        try:
            with pytest.raises(Interrupted):
                run(other.session.inspect("job", TIMEOUT))
        finally:
            later.join()
            signal.signal(signal.SIGALRM, before)
            command(redis_server, "CLIENT", "UNPAUSE")
        assert isinstance(run(other.session.acquire(make_attempt("job"), TIMEOUT)), Busy)
        assert run(other.session.release(held, TIMEOUT)) is Found.OURS


# ---- the multiplexed connection


def test_cancelled_call_keeps_replies_in_order(redis_server: RedisServer) -> None:
    client = redis_server.client()

    def ours() -> set[str]:
        return {entry["id"] for entry in client.client_list() if entry["name"] == "ours"}

    async def body(session: RedisSession) -> None:
        attempts = [make_attempt(f"job-{number}") for number in range(100)]
        await session.ping(TIMEOUT)
        before = ours()
        tasks = [asyncio.ensure_future(session.acquire(attempt, TIMEOUT)) for attempt in attempts]
        await asyncio.sleep(0)  # all requests are written, none is answered
        for task in tasks[::2]:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        tokens = [result.token for result in results if isinstance(result, Granted)]
        assert len(tokens) == 50
        for attempt, result in zip(attempts, results, strict=True):
            again = await session.acquire(attempt, TIMEOUT)
            assert isinstance(again, Granted)
            if isinstance(result, Granted):
                assert again == result  # the token stored for this lock
        assert ours() == before

    on_api("async", f"{redis_server.url}?client_name=ours", body)


def test_requests_of_one_loop_iteration_are_written_together(redis_server: RedisServer) -> None:
    async def body(session: RedisSession) -> None:
        await session.ping(TIMEOUT)
        await session.acquire(make_attempt("first"), TIMEOUT)
        client = redis_server.client()
        client.ping()
        before = client.info("stats")["total_reads_processed"]
        await asyncio.gather(*(session.acquire(make_attempt(f"job-{number}"), TIMEOUT) for number in range(100)))
        assert client.info("stats")["total_reads_processed"] - before < 10

    on_api("async", redis_server.url, body)


def test_short_timeout_is_kept_behind_a_long_one(start_redis: StartRedis) -> None:
    server = start_redis()

    async def body(session: RedisSession) -> None:
        await session.ping(TIMEOUT)
        server.pause()
        began = time.monotonic()
        long_request = asyncio.ensure_future(session.ping(30.0))
        with pytest.raises(RequestFailed) as failure:
            await session.ping(0.2)
        assert time.monotonic() - began < 0.2 + LATE
        assert failure.value.may_have_happened is True
        assert not long_request.done()
        server.resume()
        await long_request
        await session.ping(TIMEOUT)

    on_api("async", server.url, body)


def test_other_callers_connect_if_the_first_is_cancelled(redis_server: RedisServer) -> None:
    count = connections(redis_server, "shared")

    async def body(session: RedisSession) -> None:
        first, second = (asyncio.ensure_future(session.ping(TIMEOUT)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await second
        with pytest.raises(asyncio.CancelledError):
            await first
        assert count() == 1

    on_api("async", f"{redis_server.url}?client_name=shared", body)


def test_loop_blocked_for_longer_than_the_timeout_loses_no_reply(redis_server: RedisServer) -> None:
    """The replies have arrived when the loop resumes: they are read before timeouts are checked."""
    client = redis_server.client()

    async def body(session: RedisSession) -> None:
        await session.acquire(make_attempt("other"), TIMEOUT)  # loads the script
        task = asyncio.ensure_future(session.acquire(make_attempt("job"), 0.1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        blocked_until = time.monotonic() + 0.3
        eventually(lambda: client.exists("job") and time.monotonic() > blocked_until)
        assert isinstance(await task, Granted)

    on_api("async", redis_server.url, body)


def test_close_while_connecting_and_while_waiting_works(redis_server: RedisServer) -> None:
    async def main() -> None:
        engine = connect(redis_server.url, {})
        channel = AsyncioChannel(engine._server)
        request = asyncio.ensure_future(channel.command(("PING",), TIMEOUT))
        await asyncio.sleep(0)
        await channel.close()
        with pytest.raises(RequestFailed):
            await request
        channel = AsyncioChannel(engine._server)
        await channel.command(("PING",), TIMEOUT)
        request = asyncio.ensure_future(channel.command(("BLPOP", "nothing", 0), TIMEOUT))
        await asyncio.sleep(0.01)
        await channel.close()
        with pytest.raises(RequestFailed):
            await request

    asyncio.run(main())


# ---- forks


@pytest.mark.parametrize("api", ["sync", "async"])
def test_forked_child_closes_inherited_connections_silently(api: str, redis_server: RedisServer) -> None:
    engine = connect(f"{redis_server.url}?client_name=inherited", {})
    count = connections(redis_server, "inherited")

    def close_descriptors() -> bool:
        before = len(descriptors())
        engine.after_fork_in_child()
        return len(descriptors()) < before

    async def body() -> None:
        from holdfast._runtime.asyncio import AsyncioRuntime
        from holdfast._runtime.blocking import BLOCKING

        session = engine.session(BLOCKING if api == "sync" else AsyncioRuntime())
        attempt = make_attempt("job")
        assert isinstance(await session.acquire(attempt, TIMEOUT), Granted)
        assert in_a_child(close_descriptors)
        # The connection of the parent is unchanged and open.
        assert count() == 1
        assert await session.release(attempt, TIMEOUT) is Found.OURS
        assert count() == 1
        await session.close()

    run(body()) if api == "sync" else asyncio.run(body())


# ---- other ways to connect


@APIS
def test_unix_socket_works(api: str, redis_server: RedisServer) -> None:
    async def body(session: RedisSession) -> None:
        attempt = make_attempt("job")
        assert isinstance(await session.acquire(attempt, TIMEOUT), Granted)
        assert redis_server.client().exists("job") == 1

    on_api(api, redis_server.unix_url, body)


@APIS
def test_database_and_client_name_are_used(api: str, redis_server: RedisServer) -> None:
    async def body(session: RedisSession) -> None:
        assert isinstance(await session.acquire(make_attempt("job"), TIMEOUT), Granted)
        assert redis_server.client(redis_server.url.replace("/0", "/3")).exists("job") == 1
        assert "mine" in {entry["name"] for entry in redis_server.client().client_list()}

    on_api(api, redis_server.url.replace("/0", "/3") + "?client_name=mine", body)


def test_watch_whose_connection_was_closed_is_closed_without_an_error(redis_server: RedisServer) -> None:
    """As by a client that is closed while a signal has ended its caller: the finaliser of the watch finds it so."""
    with Other(redis_server.url) as other:
        channel: Any = other.session._channel
        watch = channel.watch()
        assert run(watch.take_seat("redisson_lock__channel:{a}", "waiter owner", TIMEOUT)) is not None
        assert watch._wire is not None
        watch._wire.close()
        assert watch._wire.is_dead()
        with pytest.raises(RequestFailed):
            watch._wire.listen(0.0)
        watch.close()
        assert not channel.has_idle
