"""What a hand-over costs the servers: the same, however many wait."""

from __future__ import annotations

from functools import partial

import pytest

from holdfast.engines.zookeeper import hub
from tests.servers.zookeeper import ZooKeeperServer
from tests.support.calls import Call
from tests.support.waiting import eventually
from tests.zookeeper.conftest import Connect
from tests.zookeeper.support import PATIENT


@pytest.mark.parametrize("waiters", [2, 8, 32])
def test_a_hand_over_is_one_delete_and_one_look_however_many_wait(
    connect: Connect, zookeeper_server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch, waiters: int
) -> None:
    monkeypatch.setattr(hub, "MOMENT", 3600.0)  # who holds for a while watches its own node: another read
    locks, holder = connect(request_timeout=PATIENT), connect(request_timeout=PATIENT)
    held = holder.lock("a").acquire()
    inside: list[int] = []

    def enter(number: int) -> None:
        with locks.lock("a"):
            inside.append(number)
            assert inside == [number]
            inside.remove(number)

    before = zookeeper_server.operations()
    calls = [Call(partial(enter, number)) for number in range(waiters)]
    eventually(lambda: watches(zookeeper_server) == waiters)
    came = zookeeper_server.operations()
    assert came.since(before) == (2 * waiters, waiters), "a create, a look at the line, and one at who is in front"
    held.release()
    for call in calls:
        call.result(20)
    assert zookeeper_server.operations().since(came) == (waiters, waiters + 1)


def watches(server: ZooKeeperServer) -> int:
    return int(server.ask("wchs").rpartition("Total watches:")[2])
