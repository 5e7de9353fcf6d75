"""A signal may interrupt a caller between a request and its reply. No later request may get the reply of another
request: a lock could then have two holders."""

from __future__ import annotations

import asyncio
import gc
import itertools
import weakref
from asyncio import selector_events
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar

import pytest

from holdfast._runtime import clock
from holdfast._runtime.asyncio import AsyncioRuntime
from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import Busy, Found, Granted, RequestFailed
from holdfast.engines.redis.attempt import RedlockAttempt
from holdfast.engines.redis.connections import aio, handshake
from holdfast.engines.redis.connections.handshake import open_transport
from holdfast.engines.redis.connections.settings import Server, from_url
from holdfast.engines.redis.engine import connect
from holdfast.engines.redis.session import RedisSession
from tests.redis.support import TIMEOUT, Other, keeper_of, make_attempt, session_and_keeper
from tests.servers.redis import RedisServer
from tests.servers.replication import Replication
from tests.support.signal_injector import SOURCE, InjectedInterrupt, SignalInjector

pytestmark = pytest.mark.usefixtures("no_warnings_of_dropped_objects")

#: The second signal, this many lines after the first, during its clean-up. None: there is no second signal.
AFTER = (None, 0)

#: How long a lost answer is waited for. A missing answer is allowed, a wrong one is not.
SOON = 0.1
T = TypeVar("T")
Scenario = Callable[[RedisSession, RedlockAttempt, SignalInjector], None]


def interrupt_everywhere(server: RedisServer, scenario: Scenario) -> int:
    """Runs the scenario interrupted at its first line, its second, …, until it completes without an interrupt. After
    each run the same session must still distinguish its own locks from others. Returns the number of lines."""
    with Other(server.url) as other:
        other.hold("theirs", ttl=600.0)
        for first in itertools.count():
            for then in AFTER:
                injector = SignalInjector(first, then)
                session, keeper = session_and_keeper(connect(server.url, {}), BLOCKING)
                try:
                    _run_interrupted(session, scenario, injector)
                finally:
                    run(session.close())
                    run(keeper.close())
                if not injector.interrupted_at:
                    return first
    raise AssertionError("not reached")


def _run_interrupted(session: RedisSession, scenario: Scenario, injector: SignalInjector) -> None:
    mine = make_attempt("mine")
    assert isinstance(run(session.acquire(mine, TIMEOUT)), Granted)
    try:
        scenario(session, mine, injector)
    except InjectedInterrupt:
        pass
    where = f"after interrupts at {injector.interrupted_at}"
    theirs, free = make_attempt("theirs"), make_attempt("free")
    assert run(session.renew(theirs, 30.0, TIMEOUT)) == Found.STOLEN, where
    assert run(session.renew(free, 30.0, TIMEOUT)) == Found.GONE, where
    assert run(session.renew(mine, 30.0, TIMEOUT)) == Found.OURS, where
    found = run(keeper_of(session).renew([theirs, free, mine], 30.0, TIMEOUT))
    assert found == [Found.STOLEN, Found.GONE, Found.OURS], where
    assert isinstance(run(session.acquire(theirs, TIMEOUT)), Busy), where
    assert run(session.inspect("free", TIMEOUT)).holders == (), where
    assert run(session.release(mine, TIMEOUT)) is Found.OURS, where


def test_interrupted_renewal_keeps_replies_in_order(redis_server: RedisServer) -> None:
    def scenario(session: RedisSession, mine: RedlockAttempt, injector: SignalInjector) -> None:
        assert run(session.renew(mine, 30.0, TIMEOUT)) == Found.OURS  # the connection is open
        with injector:
            run(session.renew(mine, 30.0, TIMEOUT))

    assert interrupt_everywhere(redis_server, scenario) > 30


def test_keeper_interrupted_while_renewing_reads_no_stale_reply(redis_server: RedisServer) -> None:
    def scenario(session: RedisSession, mine: RedlockAttempt, injector: SignalInjector) -> None:
        keeper = keeper_of(session)
        assert run(keeper.renew([mine], 30.0, TIMEOUT)) == [Found.OURS]  # the connection is open
        with injector:
            run(keeper.renew([mine], 30.0, TIMEOUT))

    assert interrupt_everywhere(redis_server, scenario) > 30


def test_interrupted_request_keeps_replies_in_order(redis_server: RedisServer) -> None:
    def scenario(session: RedisSession, mine: RedlockAttempt, injector: SignalInjector) -> None:
        with injector:
            run(session.inspect("theirs", TIMEOUT))

    assert interrupt_everywhere(redis_server, scenario) > 10


def test_interrupted_wait_for_replicas_keeps_replies_in_order(pair: Replication) -> None:
    def scenario(session: RedisSession, mine: RedlockAttempt, injector: SignalInjector) -> None:
        with injector:
            run(session.acquire(make_attempt("theirs", replicas=1), TIMEOUT))

    assert interrupt_everywhere(pair.master, scenario) > 10


@pytest.mark.usefixtures("hurried")
def test_interrupted_waiter_keeps_replies_in_order(redis_server: RedisServer) -> None:
    def scenario(session: RedisSession, mine: RedlockAttempt, injector: SignalInjector) -> None:
        contender = session.contender(make_attempt("theirs"), TIMEOUT)
        try:
            run(contender.wait(clock.now()))  # determines the wake-up method
            with injector:
                run(contender.wait(clock.now()))
        finally:
            contender.abandon()

    assert interrupt_everywhere(redis_server, scenario) > 30


# ---- an event loop left by a signal and run once more to clean up


def test_interrupted_event_loop_keeps_replies_in_order(redis_server: RedisServer) -> None:
    """``try: loop.run_until_complete(main()) finally: loop.run_until_complete(clean_up())`` with a handler that raises.
    (asyncio.run() would cancel the main task instead, but not every program uses it.)"""
    with Other(redis_server.url) as other:
        other.hold("theirs", ttl=600.0)
        for first in itertools.count():
            injector = SignalInjector(first, places=(SOURCE, selector_events.__file__))
            loop = asyncio.new_event_loop()
            loop.set_exception_handler(lambda *_: None)  # the default handler would log the interrupted callbacks
            try:
                _run_interrupted_on(loop, redis_server, injector)
            finally:
                loop.close()
            if not injector.interrupted_at:
                break
    assert first > 100


def _run_interrupted_on(loop: asyncio.AbstractEventLoop, server: RedisServer, injector: SignalInjector) -> None:
    mine, theirs = make_attempt("mine"), make_attempt("theirs")

    async def begin() -> RedisSession:
        session = connect(server.url, {}).session(AsyncioRuntime())
        assert isinstance(await session.acquire(mine, TIMEOUT), Granted)
        return session

    session = loop.run_until_complete(begin())

    async def ask(attempt: RedlockAttempt, expected: Found) -> None:
        for _ in range(2):
            assert await _answer(session.renew(attempt, 30.0, SOON)) in (expected, None)

    async def work(*attempts: RedlockAttempt) -> None:
        tasks = [loop.create_task(ask(each, Found.OURS if each is mine else Found.STOLEN)) for each in attempts]
        await asyncio.wait(tasks)
        for task in tasks:
            if not isinstance(task.exception(), InjectedInterrupt):
                task.result()

    async def clean_up() -> None:
        # Beside the interrupted requests, in another order, so that misattributed replies are detected.
        await asyncio.wait([main, loop.create_task(work(theirs, mine))])
        if not isinstance(main.exception(), InjectedInterrupt):
            main.result()
        assert await session.release(mine, TIMEOUT) is Found.OURS
        await session.close()

    main = loop.create_task(work(mine, theirs))
    try:
        with injector:
            loop.run_until_complete(main)
    except InjectedInterrupt:
        loop.call_soon(loop.stop)  # the interrupted task may still be ending and would end the next run
        loop.run_forever()
    try:
        loop.run_until_complete(clean_up())
    except AssertionError as error:
        raise AssertionError(f"after an interrupt at {injector.interrupted_at}") from error


def test_signal_while_connecting_is_raised_once(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the signal had already left the loop through the attempt that it interrupted. Every caller waiting
    for that attempt raised it again and ended the next run of the loop: the clean-up."""
    loop = asyncio.new_event_loop()

    async def interrupted(server: Server, timeout: float) -> NoReturn:
        monkeypatch.setattr(aio, "open_transport", open_transport)
        raise InjectedInterrupt

    async def begin() -> RedisSession:
        return connect(redis_server.url, {}).session(AsyncioRuntime())

    try:
        session = loop.run_until_complete(begin())
        monkeypatch.setattr(aio, "open_transport", interrupted)
        callers = asyncio.gather(*(loop.create_task(session.ping(TIMEOUT)) for _ in range(3)))
        with pytest.raises(InjectedInterrupt):
            loop.run_until_complete(callers)
        try:
            loop.run_until_complete(callers)
        except InjectedInterrupt:
            pytest.fail("the signal was raised again")
        loop.run_until_complete(session.close())
    finally:
        loop.close()


async def _answer(request: Awaitable[T]) -> T | None:
    """None if there is no answer because the connection was lost. That is allowed, a wrong answer is not."""
    try:
        answer = await request
    except RequestFailed:
        return None
    return None if isinstance(answer, list) and isinstance(answer[0], RequestFailed) else answer


def test_interrupted_handshake_leaves_no_socket_to_the_garbage_collector(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the connection of redis-py was part of a cycle until the end of its clean-up. Interrupted before, it
    kept the socket open, and some later collection warned of it."""
    settings = from_url(redis_server.url, {})
    opened: list[weakref.ref[Any]] = []
    disconnect = settings.blocking_class.disconnect

    def interrupted(connection: Any) -> None:
        if not opened:
            opened.append(weakref.ref(connection._sock))
            raise InjectedInterrupt
        disconnect(connection)

    monkeypatch.setattr(settings.blocking_class, "disconnect", interrupted)
    gc.disable()
    try:
        with pytest.raises(InjectedInterrupt):
            handshake._connected(settings, TIMEOUT, lambda connection: None)
        assert opened
        assert [each() for each in opened] == [None]
    finally:
        gc.enable()
