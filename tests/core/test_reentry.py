"""Re-entry: one more handle of the caller's own hold, and back, for holds of every kind."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast


@pytest.fixture
def client() -> Iterator[holdfast.Client]:
    with holdfast.connect(f"memory:{uuid.uuid4().hex}", ttl=30) as client:
        yield client


@pytest.mark.parametrize("settings", [{}, {"max_hold": 20}, {"on_lost": print}], ids=str)
def test_lock_stays_held_until_the_last_of_its_leases_is_released(
    client: holdfast.Client, settings: dict[str, Any]
) -> None:
    lock = client.lock("a", **settings)
    outer, inner = lock.acquire(), lock.acquire()
    assert inner.token == outer.token
    inner.release()
    assert inner.released
    assert outer.held
    again = lock.acquire()
    outer.release()
    assert again.held
    again.release()
    assert not lock.locked()


@pytest.mark.parametrize("settings", [{}, {"max_hold": 20}], ids=str)
def test_hold_whose_deadline_has_passed_is_lost_by_the_next_re_entry(
    client: holdfast.Client, settings: dict[str, Any]
) -> None:
    """Also where the watchdog has not looked yet: the caller was paused, and this is its first look."""
    lock = client.lock("a", **settings)
    outer, inner = lock.acquire(), lock.acquire()
    hold = outer._hold
    hold.grant.deadline = hold.core.now() - 1
    assert lock.try_acquire() is None, "the engine has it still"
    assert hold.reason == "expired"
    with pytest.raises(holdfast.LockLost):
        inner.release()


def test_release_of_an_inner_lease_finds_that_the_deadline_has_passed(client: holdfast.Client) -> None:
    outer, inner = client.lock("a").acquire(), client.lock("a").acquire()
    outer._hold.grant.deadline = outer._hold.core.now() - 1
    with pytest.raises(holdfast.LockLost, match="expired"):
        inner.release()
    assert outer.lost_reason == "expired"
    with pytest.raises(holdfast.LockLost, match="expired"):
        outer.release()
