"""A hold that was asked for directly makes its grant late: once, and only a hold that is held becomes live by it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import holdfast
from holdfast._core import direct_hold
from holdfast._core.core import Core
from holdfast._core.direct_hold import DirectHold
from holdfast._core.grant import DirectGrant
from holdfast._core.hold import HandleRef
from holdfast._runtime.blocking import run
from holdfast.lease import Lease
from tests.support.waiting import eventually


def core_of(client: holdfast.Client) -> Core:
    assert client._opened is not None
    return client._opened


@pytest.fixture
def client() -> Iterator[holdfast.Client]:
    with holdfast.connect(f"memory:{uuid.uuid4().hex}", ttl=3) as client:
        with client.lock("first"):
            eventually(lambda: not core_of(client).young)  # the watchdog runs, and has looked for the first time
        yield client


def meanwhile(monkeypatch: pytest.MonkeyPatch, handler: Callable[[], Any]) -> None:
    """Run ``handler`` while the next grant is being made, as a signal handler of the same thread may."""

    def interrupted(*args: Any) -> DirectGrant:
        monkeypatch.undo()
        handler()
        return DirectGrant(*args)

    monkeypatch.setattr(direct_hold, "DirectGrant", interrupted)


def test_grants_are_made_by_the_watchdog_and_not_by_each_pair(
    client: holdfast.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = 0

    def counting(*args: Any) -> DirectGrant:
        nonlocal made
        made += 1
        return DirectGrant(*args)

    monkeypatch.setattr(direct_hold, "DirectGrant", counting)
    core = core_of(client)
    for _ in range(200):
        with client.lock("a") as lease:
            assert lease.held
            assert lease.token
            assert lease.owner
            assert lease.remaining
    assert made < 20
    assert not core.young
    assert not core.live


def test_watchdog_makes_the_grant_and_renews_it(client: holdfast.Client) -> None:
    with client.lock("a") as lease:
        core, before = core_of(client), lease._hold.deadline
        eventually(lambda: lease._hold.deadline > before)
        assert list(core.live) == [lease._hold.grant]
        assert not core.young
    assert not core.live


def test_hold_released_while_its_grant_is_made_is_not_renewed(
    client: holdfast.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, lease = core_of(client), client.lock("a").acquire()
    meanwhile(monkeypatch, lease.release)
    assert lease._hold.grant.hold is None
    assert not core.live
    assert not core.young


def test_grant_that_a_signal_handler_makes_too_is_the_same(
    client: holdfast.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, made = core_of(client), list[object]()
    with client.lock("a") as lease:
        meanwhile(monkeypatch, lambda: made.append(lease._hold.grant))
        assert lease._hold.grant is made[0]
        assert list(core.live) == made


def test_hold_whose_grant_is_made_during_its_release_is_not_renewed(
    client: holdfast.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a signal handler, between the look whether it has one and its end."""
    core, lease = core_of(client), client.lock("a").acquire()
    now = core.now

    def interrupted() -> float:
        monkeypatch.undo()
        assert lease._hold.grant in core.live
        return now()

    monkeypatch.setattr(core, "now", interrupted)
    lease.release()
    assert not core.live
    assert not core.young


@pytest.mark.parametrize("ending", ["break_", "close"])
def test_young_hold_is_lost_like_any_other(client: holdfast.Client, ending: str) -> None:
    lease = client.lock("a").acquire()
    if ending == "break_":
        client.break_("a")
    else:
        client.close()
    assert not lease.held
    assert lease.lost_reason == {"break_": "broken", "close": "closed"}[ending]


def test_acquire_that_was_interrupted_before_its_request_is_no_forgotten_lease(
    client: holdfast.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the log blamed the user for dropping a lease that the interrupted acquire had not returned."""
    core, forgotten = core_of(client), list[HandleRef]()
    monkeypatch.setattr(HandleRef, "log_forgotten", forgotten.append)
    with core.lock:  # so the watchdog's own thread does not come first
        DirectHold(core, client.lock("a")._policy, Lease(), core.now())  # its lease is garbage at once
        assert core.watchdog.dropped
        run(core.watchdog._round(()))
    assert not forgotten
