"""Which holds are looked at before their first renewal."""

from __future__ import annotations

from typing import Any

from holdfast._core.early_looks import EARLY, EarlyLooks


class Granted:
    """A grant, as far as the looks need to know it."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.early = self.watched = False
        self.lost = None


class Looks(EarlyLooks):
    def __init__(self, *grants: Granted) -> None:
        super().__init__()
        self.oldest = min(grant.since for grant in grants)

    def take(self, live: Any, now: float) -> list[Any]:
        return super().take(live, now)


def live_of(*grants: Granted) -> dict[Granted, None]:
    return dict.fromkeys(grants)


def test_a_hold_is_looked_at_once_and_not_before_its_time() -> None:
    old, young = Granted(10.0), Granted(10.09)
    looks, live = Looks(old, young), live_of(old, young)
    assert looks.take(live, 10.0 + EARLY / 2) == []
    assert looks.take(live, 10.0 + EARLY) == [old]
    assert looks.due() == 10.09 + EARLY
    assert looks.take(live, 10.09 + EARLY) == [young]
    assert looks.take(live, 99.0) == []
    assert looks.due() == float("inf")


def test_thousands_are_taken_together_in_the_order_of_their_grants() -> None:
    grants = [Granted(10.0 + number / 1e6) for number in range(3_000)]
    assert Looks(*grants).take(live_of(*grants), 11.0) == grants


def test_a_grant_that_became_live_late_is_found_behind_those_that_were_looked_at() -> None:
    late, first = Granted(10.0), Granted(10.05)
    looks, live = Looks(first), live_of(first)
    assert looks.take(live, 10.2) == [first]
    live.update(live_of(late))
    looks.oldest = late.since
    newer = Granted(10.21)
    live.update(live_of(newer))
    assert looks.take(live, 10.26) == [late]
    assert looks.take(live, 10.4) == [newer]


def test_what_is_watched_already_or_lost_needs_no_look() -> None:
    watched, lost = Granted(10.0), Granted(10.0)
    watched.watched, lost.lost = True, "broken"  # type: ignore[assignment]
    assert Looks(watched).take(live_of(watched, lost), 11.0) == []


def test_held_leases_by_the_thousand_are_not_walked_through_at_each_look() -> None:
    walked = 0

    class Held(Granted):
        def __getattribute__(self, name: str) -> Any:
            nonlocal walked
            walked += name == "early"
            return super().__getattribute__(name)

    held, first, new = [Held(10.0) for _ in range(5_000)], Granted(98.0), Granted(100.0)
    looks = Looks(first)
    assert looks.take(live_of(first), 99.0) == [first]
    looks.oldest = new.since
    assert looks.take(live_of(*held, new), 100.2) == [new]
    assert walked == 0
