"""``break_`` of a lock that a caller of the same client is just being granted."""

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


def test_a_grant_that_is_broken_by_token_on_its_way_is_lost_at_once(
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


def test_a_grant_that_is_broken_on_its_way_is_checked_and_not_handed_over(
    client: holdfast.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client.lock("other"):  # the watchdog is awake: it does not check everything when it starts
        monkeypatch.setattr(
            client._open().queue, "waiting", lambda key: 1
        )  # so that it asks for tokens to hand it over
        break_on_grant(client, monkeypatch, by_token=False)
        lease = client.lock("a", ttl=600).acquire()
        grant = lease._hold.grant
        assert grant.next_token > grant.last_token
        eventually(lambda: lease.lost_reason == "broken")
        with pytest.raises(holdfast.LockLost):
            lease.release()


@pytest.mark.parametrize("breaks", [True, False], ids=["while it is broken", "by itself"])
def test_a_grant_on_its_way_while_its_token_is_being_broken_is_not_handed_over(
    client: holdfast.Client, monkeypatch: pytest.MonkeyPatch, breaks: bool
) -> None:
    """The engine takes it from the caller that has it by then: that must not be a later one than was named."""
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

    monkeypatch.setattr(core.queue, "waiting", lambda key: 1)  # so that it asks for tokens to be handed over
    monkeypatch.setattr(core.session, "acquire", granted_while_breaking)
    with client.lock("a") as lease:
        grant = lease._hold.grant
        assert (grant.next_token <= grant.last_token) is not breaks
