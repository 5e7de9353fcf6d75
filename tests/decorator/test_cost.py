"""A decorated call costs at most 10 µs more than the lock itself, for any name."""

from __future__ import annotations

import itertools
import timeit
from collections.abc import Callable
from dataclasses import dataclass

import pytest

import holdfast

pytestmark = pytest.mark.alone

#: Few enough that a round fits into one time slice, and rounds for a second: on a busy machine some stay undisturbed.
CALLS = 20
ROUNDS = 600


@dataclass
class User:
    user_id: int


def extra_cost(more: Callable[[], object], less: Callable[[], object]) -> float:
    """Returns the extra seconds of the first call: best of many rounds, measured alternately."""
    rounds = [[timeit.timeit(call, number=CALLS) for call in (more, less)] for _ in range(ROUNDS)]
    return (min(times[0] for times in rounds) - min(times[1] for times in rounds)) / CALLS


def test_decorated_call_costs_at_most_ten_microseconds_more_than_its_lock(client: holdfast.Client) -> None:
    user, lock = User(5), client.lock("ACCOUNT:USER:5")

    def work(user: User) -> None: ...

    def by_hand() -> None:
        with lock:
            work(user)

    locked = client.locked("{user.user_id}", prefix="ACCOUNT:USER")(work)
    extra = extra_cost(lambda: locked(user), by_hand)
    assert extra < 10e-6, f"{extra * 1e6:.1f} µs"


def test_a_new_name_costs_at_most_ten_microseconds_more_than_a_new_lock(client: holdfast.Client) -> None:
    numbers = itertools.count()

    def work(user: User) -> None: ...

    def by_hand() -> None:
        user = User(next(numbers))
        with client.lock(f"ACCOUNT:USER:{user.user_id}"):
            work(user)

    locked = client.locked("{user.user_id}", prefix="ACCOUNT:USER")(work)
    extra = extra_cost(lambda: locked(User(next(numbers))), by_hand)
    assert extra < 10e-6, f"{extra * 1e6:.1f} µs"
