"""A signal may strike a caller between a request and its reply. Whatever it leaves half-done, nobody is ever given the
reply to another's request: that would be a lock that two believe in."""

from __future__ import annotations

import gc
import itertools
import warnings
from collections.abc import Callable, Iterator

import pytest

from holdfast._runtime import clock
from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import Busy, Claim, Found, Granted
from holdfast.engines.redis.engine import connect
from holdfast.engines.redis.session import RedisSession
from tests.faults.striker import Strike, Striker
from tests.redis_engine.support import TIMEOUT, Other, make_claim
from tests.servers.redis import RedisServer
from tests.servers.replication import Replication

#: The second strike, so many lines after the first: while that is being cleaned up after. None: there is no second.
AFTER = (None, 0, 1)

Play = Callable[[RedisSession, Claim, Striker], None]


@pytest.fixture(autouse=True)
def _dropped_sockets_and_coroutines_warn() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        warnings.simplefilter("ignore", RuntimeWarning)  # a coroutine that was struck before its first step
        yield
        gc.collect()


def strike_everywhere(server: RedisServer, play: Play) -> int:
    """Play it with a strike at its first place, its second, …, until it goes through. After each, the same session
    still tells what is ours from what is not."""
    with Other(server.url) as other:
        other.hold("theirs")
        for first in itertools.count():
            for then in AFTER:
                striker = Striker(first, then)
                session = connect(server.url, {}).session(BLOCKING)
                try:
                    _struck(session, play, striker)
                finally:
                    run(session.close())
                if not striker.struck_at:
                    return first
    raise AssertionError("not reached")


def _struck(session: RedisSession, play: Play, striker: Striker) -> None:
    mine = make_claim("mine")
    assert isinstance(run(session.acquire(mine, TIMEOUT)), Granted)
    try:
        play(session, mine, striker)
    except Strike:
        pass
    where = f"after strikes at {striker.struck_at}"
    theirs, nobodys = make_claim("theirs"), make_claim("nobodys")
    assert run(session.renew([theirs], 30.0, TIMEOUT)) == [Found.STOLEN], where
    assert run(session.renew([nobodys], 30.0, TIMEOUT)) == [Found.GONE], where
    assert run(session.renew([mine], 30.0, TIMEOUT)) == [Found.OURS], where
    assert isinstance(run(session.acquire(theirs, TIMEOUT)), Busy), where
    assert run(session.inspect("nobodys", TIMEOUT)).holders == (), where
    assert run(session.release(mine, TIMEOUT)) is Found.OURS, where


def test_struck_while_renewing(redis_server: RedisServer) -> None:
    def play(session: RedisSession, mine: Claim, striker: Striker) -> None:
        assert run(session.renew([mine], 30.0, TIMEOUT)) == [Found.OURS]  # the connection is there
        with striker:
            run(session.renew([mine], 30.0, TIMEOUT))

    assert strike_everywhere(redis_server, play) > 30


def test_struck_while_asking(redis_server: RedisServer) -> None:
    def play(session: RedisSession, mine: Claim, striker: Striker) -> None:
        with striker:
            run(session.inspect("theirs", TIMEOUT))

    assert strike_everywhere(redis_server, play) > 10


def test_struck_while_waiting_for_replicas(pair: Replication) -> None:
    def play(session: RedisSession, mine: Claim, striker: Striker) -> None:
        with striker:
            run(session.acquire(make_claim("theirs", replicas=1), TIMEOUT))

    assert strike_everywhere(pair.master, play) > 10


def test_struck_while_waiting_in_line(redis_server: RedisServer) -> None:
    def play(session: RedisSession, mine: Claim, striker: Striker) -> None:
        contender = session.contender(make_claim("theirs"), TIMEOUT)
        try:
            run(contender.wait(clock.now()))  # the way of waking is known
            with striker:
                run(contender.wait(clock.now()))
        finally:
            contender.abandon()

    assert strike_everywhere(redis_server, play) > 30
