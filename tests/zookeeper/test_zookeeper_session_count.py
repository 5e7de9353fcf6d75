"""A session is a connection and a thread: a client has few of them, and ends those that it does not use."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kazoo.client import KazooClient

import holdfast
from holdfast._runtime.blocking import BLOCKING
from holdfast.engines.zookeeper import hub
from holdfast.engines.zookeeper.reply import Reply
from tests.servers.zookeeper import ZooKeeperServer
from tests.support.calls import Call
from tests.support.leaks import close_open_clients, threads
from tests.support.waiting import eventually
from tests.zookeeper.conftest import Connect
from tests.zookeeper.support import SOON, connection_of, hub_of, is_waiting, nodes

Start = Callable[..., ZooKeeperServer]


def test_many_ttls_share_few_sessions(connect: Connect) -> None:
    locks = connect(ttl=9)
    for number in range(60):
        asked = 2 + number * 0.1
        with locks.lock("job", ttl=asked, timeout=SOON) as lease:
            assert 0.74 * asked <= lease.ttl <= asked
    assert len(hub_of(locks)._connections) <= 7


def test_unused_session_is_ended_and_recreated_when_needed(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, plain: KazooClient
) -> None:
    monkeypatch.setattr(hub, "_IDLE", 0.3)
    close_open_clients()  # threads of earlier tests would end while this one counts
    eventually(lambda: threads().count("holdfast-zookeeper") == 0)
    locks = connect(ttl=9)
    with locks.lock("own") as own:
        for _ in range(2):
            with locks.lock("short", ttl=2, timeout=SOON) as lease:
                assert lease.ttl == 2.0
                assert threads().count("holdfast-zookeeper") == 2
            eventually(lambda: threads().count("holdfast-zookeeper") == 1)
        assert own.held
        assert len(nodes(plain, "own")) == 1
    assert list(hub_of(locks)._connections) == [9]


def test_session_with_a_lease_or_a_waiter_is_not_ended(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_IDLE", 0.2)
    locks, others = connect(ttl=9), connect()
    held = locks.lock("held", ttl=2).acquire()
    theirs = others.lock("theirs").acquire()
    waiting = Call(lambda: locks.lock("theirs", ttl=3).acquire(timeout=2 * SOON))
    eventually(lambda: is_waiting(locks))
    before = [connection_of(locks, ttl).session for ttl in (2, 3)]
    assert not held.lost.wait(1.5)
    theirs.release()
    waiting.result().release()
    assert [connection_of(locks, ttl).session for ttl in (2, 3)] == before
    held.release()


def test_too_many_sessions_are_refused_with_a_remedy(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_MOST_SESSIONS", 2)
    locks = connect(ttl=20)
    first, second = (locks.lock(f"lock {ttl}", ttl=ttl).acquire() for ttl in (4, 5))
    with pytest.raises(holdfast.UsageError, match=r"2 beside its own already, for ttls of 4, 5 s: use fewer"):
        locks.lock("third", ttl=6).acquire()
    locks.lock("as the client", ttl=30).acquire().release()
    first.release()
    third = locks.lock("third", ttl=6).acquire()  # replaces the session that is no longer used
    assert (second.held, third.ttl) == (True, 6.0)
    third.release()
    second.release()


def test_shortest_allowed_session_is_used_if_the_rounded_ttl_is_too_short(
    start_zookeeper: Start, connect: Connect
) -> None:
    server = start_zookeeper("minSessionTimeout=4200")
    locks = connect(server.url)
    with locks.lock("a", ttl=4.5) as lease:
        assert lease.ttl == pytest.approx(4.2, abs=0.01)
    with pytest.raises(holdfast.UsageError, match=r"do not allow sessions of 4\.1 s, but of 4\.2 s"):
        locks.lock("a", ttl=4.1).acquire()


def test_receivers_of_interrupted_callers_are_dropped_with_the_next_change(connect: Connect) -> None:
    """An interrupted caller may not have removed its receiver."""
    locks = connect()
    locks.ping()
    sharing = hub_of(locks)
    for _ in range(100):
        sharing.expect(Reply(BLOCKING.event()).receiver)
    sharing._changed(connection_of(locks))
    assert len(sharing._awaited) == 0
