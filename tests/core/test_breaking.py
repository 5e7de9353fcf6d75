"""``break_`` of a lock whose grant is in flight to a caller of the same client."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast._core.breaking import _pinned
from holdfast.observer import Event
from tests.support.waiting import eventually


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def client(events: list[Event]) -> Iterator[holdfast.Client]:
    with holdfast.connect(f"memory:{uuid.uuid4().hex}", observer=events.append) as client:
        yield client


def break_on_grant(client: holdfast.Client, monkeypatch: pytest.MonkeyPatch, *, by_token: bool) -> None:
    """Break the lock between the engine's grant and the hold."""
    session = client._open().session
    acquire = session.acquire

    async def granted_then_broken(*args: Any) -> Any:
        answer = await acquire(*args)
        monkeypatch.undo()
        (holder,) = client.inspect("a").holders
        assert client.break_("a", token=holder.token if by_token else None)
        return answer

    monkeypatch.setattr(session, "acquire", granted_then_broken)


def test_a_grant_in_flight_that_is_broken_by_token_is_lost_immediately(
    client: holdfast.Client, monkeypatch: pytest.MonkeyPatch, events: list[Event]
) -> None:
    break_on_grant(client, monkeypatch, by_token=True)
    lease = client.lock("a").acquire()
    assert lease.lost_reason == "broken"
    with client.lock("a", timeout=5):
        pass
    with pytest.raises(holdfast.LockLost):
        lease.release()
    client.close()
    assert [event.kind for event in events if event.kind in ("acquired", "lost", "released")] == [
        "acquired", "lost", "acquired", "released",
    ]  # fmt: skip


def test_a_grant_in_flight_that_is_broken_is_checked_and_not_handed_over(
    client: holdfast.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client.lock("other"):  # the watchdog runs already: when it starts, it would check all leases
        monkeypatch.setattr(client._open().queue, "waiting", lambda key: 1)  # so that it reserves tokens for hand-overs
        break_on_grant(client, monkeypatch, by_token=False)
        lease = client.lock("a", ttl=600).acquire()
        grant = lease._hold.grant
        assert grant.next_token > grant.last_token
        eventually(lambda: lease.lost_reason == "broken")
        with pytest.raises(holdfast.LockLost):
            lease.release()


@pytest.mark.parametrize("breaks", [True, False], ids=["while it is broken", "not broken"])
def test_a_grant_in_flight_is_handed_over_only_if_its_token_is_not_being_broken(
    client: holdfast.Client, monkeypatch: pytest.MonkeyPatch, breaks: bool
) -> None:
    """The engine breaks the claim for whichever caller holds it by then. That must be the caller of the named token."""
    core = client._open()
    acquire = core.session.acquire

    async def granted_while_breaking(*args: Any) -> Any:
        answer = await acquire(*args)
        monkeypatch.undo()
        (holder,) = client.inspect("a").holders
        assert holder.token is not None
        if breaks:
            with core.lock:
                assert _pinned(core, "a", [], holder.token)
        return answer

    monkeypatch.setattr(core.queue, "waiting", lambda key: 1)  # so that it reserves tokens for hand-overs
    monkeypatch.setattr(core.session, "acquire", granted_while_breaking)
    with client.lock("a") as lease:
        grant = lease._hold.grant
        assert (grant.next_token <= grant.last_token) is not breaks
