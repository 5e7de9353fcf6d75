"""Registers on ZooKeeper when replies are lost, sessions end and members of an ensemble die."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast._runtime import clock
from holdfast._runtime.blocking import run
from holdfast.engines.base import RequestFailed
from holdfast.engines.registers import Cell, Look, RegisterKey, Stale, Standing
from holdfast.engines.zookeeper import presences
from holdfast.testing.faults import Occasion, Rule
from tests.servers.ensemble import Ensemble
from tests.servers.zookeeper import ZooKeeperServer, close_client
from tests.servers.zookeeper_proxy import ZooKeeperProxy
from tests.servers.zookeeper_wire import Op
from tests.zookeeper.register_client import RegisterClient

KEY = RegisterKey("orders", "condition:full")
SOON = 20.0
#: For a request whose answer never comes.
SHORT = 0.3

Loss = Callable[[Occasion], Rule]
every_loss = pytest.mark.parametrize(
    "lose",
    [
        Occasion.drop_reply_and_reset,
        Occasion.black_hole,
        Occasion.drop_request_and_reset,
        Occasion.drop_request_black_hole,
    ],
)


def repeated(request: Callable[[float], object]) -> object:
    """The answer to a request that is repeated until there is one, as the core does."""
    until = clock.now() + SOON
    while True:
        try:
            return request(SHORT)
        except RequestFailed:
            assert clock.now() < until


@every_loss
def test_a_load_whose_answer_was_lost_is_repeated(lose: Loss, proxy: ZooKeeperProxy, proxied: str) -> None:
    with RegisterClient(f"{proxied}&ttl=4s") as client:
        first = client.hold("orders")
        client.load(KEY, first)
        client.store(KEY, first, 0, value=b"one")
        client.release()
        guard = client.hold("orders")
        lost = lose(proxy.on(Op.MULTI, containing="guard-"))
        assert repeated(lambda timeout: client.load(KEY, guard, timeout)) == Cell(b"one", "", 1)
        assert lost.fired
        assert client.store(KEY, first, 1, value=b"late") == Stale(guard.token, 1)
        assert client.store(KEY, guard, 1, value=b"two") == 2


@every_loss
def test_a_store_whose_answer_was_lost_takes_effect_once(lose: Loss, proxy: ZooKeeperProxy, proxied: str) -> None:
    with RegisterClient(f"{proxied}&ttl=4s") as client:
        guard = client.hold("orders")
        client.load(KEY, guard)
        lost = lose(proxy.on(Op.MULTI, containing="full=w1:W"))
        answer = repeated(
            lambda timeout: client.store(KEY, guard, 0, timeout, value=b"one", queue="full=w1:W", join="w1")
        )
        assert lost.fired
        assert answer in (1, Stale(guard.token, 1)), "done, by the first or by the second transmission"
        assert client.load(KEY, guard) == Cell(b"one", "full=w1:W", 1, frozenset({"w1"}))


@every_loss
def test_a_look_whose_answer_was_lost_is_repeated(lose: Loss, proxy: ZooKeeperProxy, proxied: str) -> None:
    with RegisterClient(f"{proxied}&ttl=4s") as client:
        guard = client.hold("orders")
        client.load(KEY, guard)
        client.store(KEY, guard, 0, queue="full=w1:N,w2:W")
        lost = lose(proxy.on(Op.MULTI, containing="waiters/w1"))
        registers = client.registers
        look = repeated(lambda timeout: run(registers.look(KEY, "w1", timeout)))
        assert lost.fired
        assert look == Look(Standing.NOTIFIED)
        client.look(KEY, "w1")  # the first may have been created without an answer
        assert client.peek(KEY).present == {"w1"}


def test_a_wake_up_comes_after_the_connection_was_lost(proxy: ZooKeeperProxy, proxied: str) -> None:
    with RegisterClient(proxied) as waiter, RegisterClient(proxied) as holder:
        guard = holder.hold("orders")
        holder.load(KEY, guard)
        holder.store(KEY, guard, 0, queue="full=w1:W")
        listener = waiter.armed(KEY, "w1")
        proxy.cut_all()
        until = clock.now() + SOON
        run(listener.wait(until))
        assert waiter.look(KEY, "w1") == Look(Standing.WAITING), "woken because the watch is lost"
        assert holder.store(KEY, guard, 1, queue="full=w1:N", wake=["w1"]) == 2
        run(listener.wait(until))
        assert clock.now() < until
        assert waiter.look(KEY, "w1") == Look(Standing.NOTIFIED)
        listener.close()


def test_a_waiter_whose_session_has_ended_is_absent_until_it_looks(
    zookeeper_server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presences, "PRESENCE", 10 * SOON)  # absent by the end of the session, not by a slow machine
    with RegisterClient(zookeeper_server.url) as waiter, RegisterClient(zookeeper_server.url) as other:
        guard = other.hold("orders")
        other.load(KEY, guard)
        other.store(KEY, guard, 0, queue="full=w1:N,w2:W", join="w2")
        listener = waiter.armed(KEY, "w1")
        assert other.look(KEY, "w2") == Look(Standing.WAITING)
        inner = waiter.session._hub.existing(30.0)._client
        close_client(zookeeper_server.client(client_id=(inner._session_id, inner._session_passwd)))
        assert "w1" not in other.peek(KEY).present
        assert other.look(KEY, "w2") == Look(Standing.WAITING, 0, orphan=True)
        registers = waiter.registers
        look = repeated(lambda timeout: run(registers.look(KEY, "w1", timeout)))
        assert look == Look(Standing.NOTIFIED)
        assert "w1" in other.peek(KEY).present
        assert other.look(KEY, "w2") == Look(Standing.WAITING)
        listener.close()


def test_registers_survive_a_killed_member_of_three(ensemble: Ensemble) -> None:
    """What was confirmed is there, and the next holder goes on from it."""
    with RegisterClient(f"{ensemble.url}&ttl=40s") as client:
        guard = client.hold("orders")
        assert client.load(KEY, guard) == Cell()
        version = 0
        for victim in (ensemble.leader, lambda: ensemble.followers()[0]):
            ensemble.wait_until_complete()
            member = victim()
            assert client.store(KEY, guard, version, value=b"%d" % version) == version + 1
            ensemble.kill(member)
            answer = repeated(lambda timeout: client.store(KEY, guard, version + 1, timeout, value=b"after"))  # noqa: B023
            assert answer in (version + 2, Stale(guard.token, version + 2))
            version += 2
            assert repeated(lambda _: client.peek(KEY)) == Cell(b"after", "", version)
            member.respawn()
