"""Run one test body sync and async; make claims; read a server's statistics."""

from __future__ import annotations

import asyncio
import inspect
import secrets
import socket
import weakref
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final, Protocol, Self, TypeVar

import pytest

from holdfast._runtime.asyncio import AsyncioRuntime
from holdfast._runtime.base import Runtime
from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import Claim, Found, Keeper, RequestFailed, Session
from holdfast.engines.redis.attempt import RedlockAttempt
from holdfast.engines.redis.connections import in_flight
from holdfast.engines.redis.engine import RedisEngine, connect
from holdfast.engines.redis.session import RedisSession
from holdfast.engines.redis.waiting.watch import Way
from tests.servers.redis import RedisServer

TIMEOUT: Final = 5.0
#: A waiter polls after half a second at the earliest: an earlier try was caused by a wake-up.
WOKEN: Final = 0.4
#: With ``only_woken``: a waiter that continues by then was woken. (Its own place expires after 2 seconds.)
SOON: Final = 4.0
#: Tolerated delay on a machine with scheduler stalls.
LATE: Final = 1.5
#: The rights that each wake-up method needs.
USERS: Final = {
    Way.TRACKING: "+@all",
    Way.CHANNEL: "+@all -client|tracking",
    Way.POLLING: "+@all -client|tracking -subscribe",
}

Body = Callable[..., Coroutine[Any, Any, None]]
S = TypeVar("S", bound=Session[Any], covariant=True)


class Makes(Protocol[S]):
    """The part of an engine that makes sessions and keepers."""

    def session(self, runtime: Runtime) -> S: ...

    def keeper(self, runtime: Runtime) -> Keeper[Any]: ...


_keepers: weakref.WeakKeyDictionary[Any, Keeper[Any]] = weakref.WeakKeyDictionary()


def session_and_keeper(engine: Makes[S], runtime: Runtime) -> tuple[S, Keeper[Any]]:
    """The caller closes both. ``keeper_of`` returns the keeper of the session."""
    session, keeper = engine.session(runtime), engine.keeper(BLOCKING)
    _keepers[session] = keeper
    return session, keeper


def keeper_of(session: Session[Any]) -> Keeper[Any]:
    """The keeper that was made together with ``session``. It is blocking, as in a client's watchdog."""
    return _keepers[session]


async def renewed(session: Session[Any], attempt: Any, ttl: float, timeout: float) -> Found | RequestFailed:
    """One renewal by a caller. Returns a failure instead of raising it."""
    try:
        return await session.renew(attempt, ttl, timeout)
    except RequestFailed as failure:
        return failure


def sync_and_async(body: Body) -> Callable[..., None]:
    """Run ``async def test(session, server, …)`` on a blocking and on an asyncio session of ``redis_server``."""

    def test(api: str, redis_server: RedisServer, **fixtures: Any) -> None:
        on_api(api, redis_server.url, lambda session: body(session, redis_server, **fixtures))

    others = list(inspect.signature(body).parameters.values())[2:]
    test.__name__, test.__doc__ = body.__name__, body.__doc__
    keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD
    own = [inspect.Parameter(name, keyword) for name in ("api", "redis_server")]
    test.__signature__ = inspect.Signature([*own, *others])  # type: ignore[attr-defined]
    test.pytestmark = [  # type: ignore[attr-defined]
        pytest.mark.parametrize("api", ["sync", "async"]).mark,
        *getattr(body, "pytestmark", []),
    ]
    return test


def on_api(api: str, url: str, body: Callable[[RedisSession], Coroutine[Any, Any, None]], **options: Any) -> None:
    """Run ``body`` on a session of one API."""
    on(connect(url, options), api, body)


def on(engine: Makes[S], api: str, body: Callable[[S], Coroutine[Any, Any, None]]) -> None:
    """Run ``body`` on a session of ``engine``, sync or async."""

    async def main() -> None:
        session, keeper = session_and_keeper(engine, BLOCKING if api == "sync" else AsyncioRuntime())
        try:
            await body(session)
        finally:
            await keeper.close()
            await session.close()

    if api == "sync":
        run(main())
    else:
        asyncio.run(main())


class Other:
    """Another, blocking client of the same server, which prepares what the session under test meets."""

    def __init__(self, url: str, **options: Any) -> None:
        self.engine: RedisEngine = connect(url, options)
        self.session = self.engine.session(BLOCKING)
        self.keeper = self.engine.keeper(BLOCKING)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        run(self.keeper.close())
        run(self.session.close())

    def hold(self, name: str, ttl: float = 30.0) -> RedlockAttempt:
        attempt = make_attempt(name, ttl)
        granted = run(self.session.acquire(attempt, TIMEOUT))
        assert hasattr(granted, "token"), f"{name} is busy"
        return attempt

    def release(self, attempt: RedlockAttempt) -> None:
        run(self.session.release(attempt, TIMEOUT))


def make_attempt(name: str, ttl: float = 30.0, **keywords: Any) -> RedlockAttempt:
    """An attempt at a new claim, for any Redis engine."""
    return RedlockAttempt(Claim(name, f"{secrets.token_hex(8)}:{secrets.randbits(63)}", ttl, **keywords))


def command(server: RedisServer, *words: Any) -> Any:
    """Run any command as an operator."""
    client: Any = server.client()
    with client:  # closed at once: a loop over hundreds of commands would use up the descriptors that select() can take
        return client.execute_command(*words)


def connections(server: RedisServer, name: str) -> Callable[[], int]:
    """How many connections called ``name`` (URL parameter client_name) the server has."""
    client = server.client()
    return lambda: sum(entry["name"] == name for entry in client.client_list())


def dies_waiting(server: RedisServer, name: str, waiter: str | None) -> None:
    """Its process was killed: its key expires, 2 s after the last look at most. Here the rest of it is cut short."""
    client: Any = server.client()
    key = f"holdfast_queue:{{{name}}}:{waiter}"
    assert 0 < client.pttl(key) <= 2000
    client.pexpire(key, 100)


#: Commands that reading the statistics takes.
_ASIDE: Final = frozenset({"cmdstat_config|resetstat", "cmdstat_hello", "cmdstat_info"})


def calls(server: RedisServer) -> dict[str, int]:
    """How often each command was run since the last CONFIG RESETSTAT, without those of this function."""
    counted: Any = server.client().info("commandstats")
    return {name.removeprefix("cmdstat_"): row["calls"] for name, row in counted.items() if name not in _ASIDE}


@contextmanager
def full(server: RedisServer) -> Iterator[None]:
    """Within the block the server refuses new connections and serves the existing ones."""
    server.client().ping()
    with ExitStack() as closing:
        while True:
            other = closing.enter_context(socket.create_connection((server.host, server.port)))
            other.sendall(b"PING\r\n")
            if other.recv(100).startswith(b"-ERR max number of clients"):
                break
        yield


def counting(sent: list[int]) -> Callable[..., Any]:
    """As ``in_flight._send``; ``sent`` has the number of calls in each buffer."""
    send = in_flight._send

    def counted(wire: Any, calls: Sequence[Any], *rest: Any) -> Any:
        sent.append(len(calls))
        return send(wire, calls, *rest)

    return counted
