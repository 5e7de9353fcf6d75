"""A decorated call costs at most 10 µs more than the lock itself, whatever the name."""

from __future__ import annotations

import itertools
import timeit
from collections.abc import Callable
from dataclasses import dataclass

import holdfast

CALLS = 300


@dataclass
class User:
    user_id: int


def best(call: Callable[[], object]) -> float:
    """Seconds of one call. The best of many rounds, since a busy machine only ever adds."""
    return min(timeit.repeat(call, number=CALLS, repeat=25)) / CALLS


def test_a_call_costs_at_most_ten_microseconds_more_than_its_lock(client: holdfast.Client) -> None:
    user, lock, numbers = User(5), client.lock("ACCOUNT:USER:5"), itertools.count()

    def work(user: User) -> None: ...

    def by_hand() -> None:
        with lock:
            work(user)

    def by_hand_anew() -> None:
        with client.lock(f"ACCOUNT:USER:{next(numbers)}"):
            work(user)

    locked = client.locked("{user.user_id}", prefix="ACCOUNT:USER")(work)
    same = best(lambda: locked(user)) - best(by_hand)
    new = best(lambda: locked(User(next(numbers)))) - best(by_hand_anew)
    assert same < 10e-6, f"{same * 1e6:.1f} µs for a name that recurs"
    assert new < 10e-6, f"{new * 1e6:.1f} µs for a new name each time"
