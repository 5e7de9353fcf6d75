"""Withdrawing thousands of attempts together: in few pipelined batches, or by ending their session."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence

import pytest
from kazoo.client import KazooClient

import holdfast
from holdfast._core.core import Core
from holdfast._runtime.blocking import run
from holdfast._runtime.clock import now
from holdfast.engines.base import Claim, Found, Granted, RequestFailed, SimpleAttempt, Withdrawn
from holdfast.engines.zookeeper import withdrawal
from tests.servers.zookeeper import BASE, ZooKeeperServer
from tests.servers.zookeeper_proxy import ZooKeeperProxy
from tests.servers.zookeeper_wire import Op
from tests.support.waiting import eventually
from tests.zookeeper.conftest import Connect
from tests.zookeeper.support import LONG_TIMEOUT, connection_of, hub_of, nodes

Start = Callable[..., ZooKeeperServer]


def core_of(locks: holdfast.Client) -> Core:
    locks.ping()
    assert locks._opened is not None
    return locks._opened


def attempts(count: int, ttl: float = 30.0) -> list[SimpleAttempt]:
    client = uuid.uuid4()
    return [SimpleAttempt(Claim(f"n{number}", f"{client}:{number}", ttl)) for number in range(count)]


def take(core: Core, some: Sequence[SimpleAttempt]) -> None:
    for attempt in some:
        assert isinstance(run(core.session.acquire(attempt, LONG_TIMEOUT)), Granted)


def withdraw(core: Core, some: Sequence[SimpleAttempt], timeout: float) -> Sequence[Withdrawn]:
    return run(core.watchdog._keeper.withdraw(some, timeout))


def unused_for_a_while(locks: holdfast.Client) -> None:
    """Pretend that the session was idle, so that it may be ended."""
    connection_of(locks).used -= 60.0


def test_batch_is_pipelined_and_does_not_take_a_round_trip_for_each_attempt(
    connect: Connect, proxy: ZooKeeperProxy, proxied: str, plain: KazooClient
) -> None:
    locks = connect(proxied)
    core, some = core_of(locks), attempts(20)
    take(core, some)
    never_sent, lost = attempts(2)
    lost.claim = lost.claim._replace(name="lost")
    run(core.session.acquire(lost, LONG_TIMEOUT))
    hub_of(locks)._places.pop(lost.owner)  # as if the answer to its creation had been lost
    held_back = proxy.on(Op.DELETE).delay()
    before = proxy.operations().count(Op.DELETE)
    began = now()
    answers = withdraw(core, [*some, never_sent, lost], 0.5)
    assert now() - began < 3.0
    assert isinstance(answers[0], RequestFailed), "no answer in time"
    held_back.release()
    eventually(lambda: proxy.operations().count(Op.DELETE) >= before + 21)
    eventually(lambda: not any(nodes(plain, attempt.claim.name) for attempt in (*some, lost)))


def test_each_withdrawn_claim_has_its_own_answer(connect: Connect, plain: KazooClient) -> None:
    locks = connect()
    core, some = core_of(locks), attempts(4)
    take(core, some[:3])
    hub_of(locks)._places.pop(some[1].owner)
    plain.delete(f"{BASE}/n2/{nodes(plain, 'n2')[0]}")
    assert withdraw(core, some, LONG_TIMEOUT) == [Found.OURS, Found.OURS, Found.GONE, Found.GONE]
    assert not any(nodes(plain, attempt.claim.name) for attempt in some)
    assert len(hub_of(locks)) == 0


def test_batch_ends_within_its_timeout_if_the_server_is_frozen(
    start_zookeeper: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(withdrawal, "_AT_ONCE", 20)  # so that it is sent in several parts
    server = start_zookeeper()
    locks = connect(server.url)
    core, some = core_of(locks), attempts(50)
    take(core, some)
    server.pause()
    began = now()
    answers = withdraw(core, some, 0.5)
    assert now() - began < 2.5
    assert all(isinstance(answer, RequestFailed) for answer in answers)
    server.resume()
    eventually(lambda: {*withdraw(core, some, LONG_TIMEOUT)} <= {Found.OURS, Found.GONE}, within=10)
    eventually(lambda: len(hub_of(locks).leftovers) == 0)


def test_session_without_other_leases_is_ended_instead_of_withdrawing_one_by_one(
    connect: Connect, plain: KazooClient
) -> None:
    locks = connect()
    core, some = core_of(locks), attempts(250)
    take(core, some)
    before = connection_of(locks)
    unused_for_a_while(locks)
    began = time.monotonic()
    assert set(withdraw(core, some, LONG_TIMEOUT)) == {Found.OURS}
    assert time.monotonic() - began < 2.0
    assert before.ended
    assert not any(nodes(plain, attempt.claim.name) for attempt in some[::50])
    assert len(hub_of(locks)) == 0
    locks.lock("a").acquire(timeout=LONG_TIMEOUT).release()  # in a session of its own


@pytest.mark.parametrize("in_use", ["by another lease", "by a caller a moment ago"])
def test_a_session_in_use_is_not_ended_for_a_batch(connect: Connect, plain: KazooClient, in_use: str) -> None:
    locks = connect()
    core, some = core_of(locks), attempts(250)
    take(core, some)
    before = connection_of(locks).session
    if in_use == "by another lease":
        with locks.lock("a") as lease:
            unused_for_a_while(locks)
            assert set(withdraw(core, some, LONG_TIMEOUT)) == {Found.OURS}
            assert lease.held
            assert len(nodes(plain, "a")) == 1
    else:
        assert set(withdraw(core, some, LONG_TIMEOUT)) == {Found.OURS}
    assert connection_of(locks).session == before
    assert not any(nodes(plain, attempt.claim.name) for attempt in some[::50])


def test_closing_with_many_leases_releases_them_all(zookeeper_server: ZooKeeperServer, plain: KazooClient) -> None:
    locks = holdfast.connect(zookeeper_server.url)
    leases = [locks.lock(f"n{number}").acquire() for number in range(300)]
    began = time.monotonic()
    locks.close()
    assert time.monotonic() - began < 3.0
    assert {lease.lost_reason for lease in leases} == {"closed"}
    assert not any(nodes(plain, f"n{number}") for number in range(0, 300, 20))
