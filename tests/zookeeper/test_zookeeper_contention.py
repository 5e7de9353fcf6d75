"""The cost of a hand-over for the servers does not depend on the number of waiters."""

from __future__ import annotations

from functools import partial

import pytest

from holdfast.engines.zookeeper import hub
from tests.servers.zookeeper import ZooKeeperServer
from tests.support.calls import Call
from tests.support.waiting import eventually
from tests.zookeeper.conftest import Connect
from tests.zookeeper.support import LONG_TIMEOUT


@pytest.mark.parametrize("waiters", [2, 8, 32])
def test_hand_over_costs_one_delete_and_one_read_for_any_number_of_waiters(
    connect: Connect, zookeeper_server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch, waiters: int
) -> None:
    monkeypatch.setattr(hub, "MOMENT", 3600.0)  # a long-time holder watches its own node, which is another read
    locks, holder = connect(request_timeout=LONG_TIMEOUT), connect(request_timeout=LONG_TIMEOUT)
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
    queued = zookeeper_server.operations()
    assert queued.since(before) == (2 * waiters, waiters), "a create, and a read each of queue and predecessor"
    held.release()
    for call in calls:
        call.result(20)
    assert zookeeper_server.operations().since(queued) == (waiters, waiters + 1)


def watches(server: ZooKeeperServer) -> int:
    return int(server.ask("wchs").rpartition("Total watches:")[2])
