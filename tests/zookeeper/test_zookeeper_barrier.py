"""Barriers as Curator's DistributedDoubleBarrier lays them out: checked with a plain client, and with lost messages."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

import holdfast
from holdfast.engines.zookeeper.connection import Connection
from tests.servers.zookeeper import BASE
from tests.servers.zookeeper_proxy import ZooKeeperProxy
from tests.servers.zookeeper_wire import Op
from tests.support.calls import Call
from tests.support.waiting import eventually, until
from tests.zookeeper.conftest import Connect
from tests.zookeeper.support import LONG_TIMEOUT, SOON, hub_of

PATH = f"{BASE}/gate"
ID = r"_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-"


def children(plain: KazooClient) -> list[str]:
    return sorted(plain.get_children(PATH)) if plain.exists(PATH) else []


def java(plain: KazooClient) -> str:
    """A member as Curator creates it; its path."""
    made: str = plain.create(f"{PATH}/{uuid.uuid4()}", ephemeral=True, makepath=True)
    return made


def entering(barrier: Any) -> Call:
    return Call(lambda: barrier.enter(2 * SOON))


def is_member(client: Any) -> bool:
    """Whether ``client`` knows that it has entered a round. Its node exists a moment earlier; one that is deleted in
    between is created again."""
    return any(place.token for place in list(hub_of(client)._places.values()))


def test_members_are_children_and_ready_exists_while_the_round_is_open(connect: Connect, plain: KazooClient) -> None:
    locks = connect()
    first, second = locks.barrier("gate", 2), locks.barrier("gate", 2)
    entered = entering(first)
    eventually(lambda: len(children(plain)) == 1)
    (node,) = children(plain)
    assert re.fullmatch(f"{ID}member-0000000002", node)
    data, stat = plain.get(f"{PATH}/{node}")
    assert stat.ephemeralOwner != 0
    state = locks.inspect("gate")
    assert (state.kind, [holder.owner for holder in state.holders]) == ("barrier", [json.loads(data)["owner"]])
    assert second.enter(SOON)
    assert entered.result()
    assert len(children(plain)) == 3
    assert plain.get(f"{PATH}/ready")[0] == b""
    assert second.leave(0) is False
    assert "ready" in children(plain)
    assert first.leave(SOON)
    assert children(plain) == []


def test_members_of_java_are_counted_and_waited_for(connect: Connect, plain: KazooClient) -> None:
    barrier, theirs = connect().barrier("gate", 2), java(plain)
    assert barrier.enter(SOON)
    assert "ready" in children(plain)
    assert barrier.leave(0) is False
    plain.delete(theirs)
    eventually(lambda: "ready" in children(plain))
    assert barrier.enter(0) is False, "nothing but the node ready is left, and is removed"
    assert children(plain) == []


def test_ready_that_java_has_created_lets_a_member_in(connect: Connect, plain: KazooClient) -> None:
    barrier = connect().barrier("gate", 3)
    entered = entering(barrier)
    eventually(lambda: len(children(plain)) == 1)
    theirs = java(plain)
    plain.create(f"{PATH}/ready")
    assert entered.result()
    leaving = Call(lambda: barrier.leave(SOON))
    eventually(lambda: len(children(plain)) == 2)
    plain.delete(theirs)
    assert leaving.result()
    assert children(plain) == []


def test_open_round_of_java_is_waited_for_and_a_lone_ready_is_removed(connect: Connect, plain: KazooClient) -> None:
    barrier, theirs = connect().barrier("gate", 1), java(plain)
    plain.create(f"{PATH}/ready")
    assert barrier.enter(0.2) is False
    assert len(children(plain)) == 2
    entered = entering(barrier)
    assert not entered.done
    plain.delete(theirs)
    with contextlib.suppress(NoNodeError):  # by whichever side deletes it first
        plain.delete(f"{PATH}/ready")
    assert entered.result()
    assert barrier.leave(SOON)
    plain.ensure_path(PATH)
    plain.create(f"{PATH}/ready")
    assert barrier.enter(SOON), "its members have died"
    assert barrier.leave(SOON)


def test_members_that_do_not_agree_about_their_number_are_refused(connect: Connect, plain: KazooClient) -> None:
    locks = connect()
    two = locks.barrier("gate", 2)
    entered = entering(two)
    eventually(lambda: len(children(plain)) == 1)
    with pytest.raises(holdfast.UsageError, match="2 parties in this round, and not 3"):
        locks.barrier("gate", 3).enter(SOON)
    eventually(lambda: len(children(plain)) == 1)
    other = locks.barrier("gate", 2)
    assert other.enter(SOON)
    assert entered.result()
    assert other.leave(0) is False
    assert two.leave(SOON)


def test_barrier_of_java_and_other_kinds_of_one_name_are_refused(connect: Connect, plain: KazooClient) -> None:
    locks = connect()
    theirs = java(plain)
    with pytest.raises(holdfast.EngineRefused, match="in use as a barrier, not as a lock"):
        locks.lock("gate").acquire(timeout=SOON)
    plain.delete(theirs)
    with locks.lock("gate"), pytest.raises(holdfast.EngineRefused, match="in use as a lock, not as a barrier"):
        locks.barrier("gate", 1).enter(SOON)
    assert children(plain) == []


def test_broken_member_learns_it_and_the_others_leave(connect: Connect, plain: KazooClient) -> None:
    locks = connect()
    one, two = locks.barrier("gate", 2), connect().barrier("gate", 2)
    entered = entering(one)
    assert two.enter(SOON)
    assert entered.result()
    assert locks.break_("gate")
    for barrier in (one, two):
        with pytest.raises(holdfast.LockLost):
            barrier.leave(SOON)
    assert one.enter(0) is False
    assert children(plain) == []


def test_member_whose_node_is_deleted_while_it_waits_does_not_enter(connect: Connect, plain: KazooClient) -> None:
    locks = connect()
    entered = entering(locks.barrier("gate", 3))
    eventually(lambda: len(children(plain)) == 1)
    eventually(lambda: is_member(locks))
    (node,) = children(plain)
    theirs = java(plain)
    with plain.transaction() as step:
        step.delete(f"{PATH}/{node}")
        step.create(f"{PATH}/ready")
    with pytest.raises(holdfast.LockLost):
        entered.result()
    plain.delete(theirs)


def test_member_whose_node_is_deleted_between_two_requests_of_a_look_does_not_enter(
    connect: Connect, plain: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request reads the members, one whether the round is open. The first one is answered when the node is deleted
    and the round is opened without it."""
    locks = connect()
    entered = entering(locks.barrier("gate", 3))
    eventually(lambda: len(children(plain)) == 1)
    eventually(lambda: is_member(locks))
    (node,) = children(plain)
    armed = threading.Event()

    def then_delete(send: Callable[[Connection, str, Any], None]) -> Callable[[Connection, str, Any], None]:
        def sent(connection: Connection, path: str, receiver: Any) -> None:
            send(connection, path, receiver)
            if path in (PATH, f"{PATH}/ready") and armed.is_set():
                armed.clear()
                eventually(lambda: receiver._reply()._done.is_set())
                with plain.transaction() as step:
                    step.delete(f"{PATH}/{node}")
                    step.create(f"{PATH}/ready")

        return sent

    for request in ("children", "stat"):
        monkeypatch.setattr(Connection, request, then_delete(getattr(Connection, request)))
    armed.set()
    theirs = java(plain)  # the member looks
    with pytest.raises(holdfast.LockLost):
        entered.result()
    assert not armed.is_set()
    plain.delete(theirs)


@pytest.mark.parametrize("fault", ["drop_reply_and_reset", "drop_request_and_reset"])
@pytest.mark.parametrize("step", ["join", "open", "leave", "end"])
def test_call_that_loses_a_message_takes_effect_once(
    connect: Connect, proxy: ZooKeeperProxy, proxied: str, plain: KazooClient, step: str, fault: str
) -> None:
    locks = connect(proxied, request_timeout=LONG_TIMEOUT)
    barrier = locks.barrier("gate", 1)
    plain.ensure_path(PATH)
    op, nth = {"join": (Op.MULTI, 1), "open": (Op.MULTI, 2), "leave": (Op.DELETE, 1), "end": (Op.MULTI, 3)}[step]
    lost = getattr(proxy.on(op, nth=nth), fault)()
    assert barrier.enter(2 * SOON)
    assert len(children(plain)) == 2
    assert barrier.leave(2 * SOON)
    assert lost.fired
    assert children(plain) == []
    assert len(hub_of(locks)) == len(hub_of(locks).leftovers) == 0


@pytest.mark.parametrize("nth", [1, 2])
async def test_enter_cancelled_before_its_answer_leaves_no_member(
    proxy: ZooKeeperProxy, proxied: str, plain: KazooClient, nth: int
) -> None:
    """Its first transaction makes it a member, the second opens the round."""
    plain.ensure_path(PATH)
    async with holdfast.aio.connect(proxied, request_timeout=LONG_TIMEOUT) as locks:
        held_back = proxy.on(Op.MULTI, nth=nth).delay()
        task = asyncio.create_task(locks.barrier("gate", 1).enter())
        await until(lambda: held_back.fired)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        held_back.release()
        await until(lambda: [child for child in children(plain) if child != "ready"] == [])
        barrier = locks.barrier("gate", 1)
        assert await barrier.enter(SOON)
        assert await barrier.leave(SOON)
    assert children(plain) == []
