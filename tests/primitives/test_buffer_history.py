"""The checks of a buffer's history find a lost, a doubled, an invented and a stuck item, and nothing in a sound one."""

from __future__ import annotations

from tests.primitives.bounded_buffer.history import Event, Kind, examine


def put(item: int, at: float) -> list[Event]:
    return [Event(at - 0.1, "p", Kind.PUTTING, item), Event(at, "p", Kind.PUT, item)]


def take(item: int, since: float, at: float, actor: str = "c") -> list[Event]:
    return [Event(since, actor, Kind.TAKING), Event(at, actor, Kind.TOOK, item)]


SOUND = [*put(1, 1.0), *put(2, 2.0), *put(3, 3.0), *take(1, 0.0, 1.1), *take(2, 1.2, 2.1)]


def test_a_sound_history_has_no_findings() -> None:
    findings = examine(SOUND, left=[3], last_taken={"c": 2})
    assert findings.consistent
    assert round(findings.longest_wait, 6) == 0.1


def test_an_acknowledged_item_that_is_nowhere_is_lost() -> None:
    assert examine(SOUND, left=[], last_taken={}).lost == {3}


def test_an_item_whose_put_has_raised_may_be_anywhere() -> None:
    unknown = [Event(3.1, "p", Kind.PUTTING, 4), Event(3.2, "p", Kind.FAILED, 4)]
    assert examine([*SOUND, *unknown], left=[3], last_taken={}).consistent
    assert examine([*SOUND, *unknown], left=[3, 4], last_taken={}).consistent


def test_an_item_that_is_taken_twice_or_still_there_is_doubled() -> None:
    twice = [*SOUND, *take(2, 1.9, 2.2, "d")]
    assert examine(twice, left=[3], last_taken={}).doubled == {2}
    assert examine(SOUND, left=[2, 3], last_taken={}).doubled == {2}
    assert examine(SOUND, left=[3], last_taken={"killed": 1}).doubled == {1}


def test_an_item_that_was_never_put_is_invented() -> None:
    assert examine([*SOUND, *take(9, 3.0, 3.1)], left=[3], last_taken={}).invented == {9}


def test_a_killed_consumers_last_item_is_not_lost() -> None:
    killed = [*put(4, 4.0), Event(3.5, "k", Kind.TAKING), Event(4.1, "k", Kind.KILLED)]
    assert examine([*SOUND, *killed], left=[3], last_taken={}).lost == {4}
    assert examine([*SOUND, *killed], left=[3], last_taken={"c": 2, "k": 4}).consistent


def test_a_consumer_that_waits_beside_an_item_is_stuck() -> None:
    stuck = [*SOUND, Event(2.5, "d", Kind.TAKING), Event(12.0, "p", Kind.PUTTING, 9)]
    assert examine(stuck, left=[3], last_taken={}).longest_wait == 9.0, "until the end of the history"
    taken_late = [*SOUND, *take(3, 2.5, 11.0, "d")]
    assert examine(taken_late, left=[], last_taken={}).longest_wait == 8.0


def test_a_consumer_that_waits_beside_nothing_is_not_stuck() -> None:
    idle = [*SOUND, *take(3, 2.5, 3.2, "d"), Event(3.3, "d", Kind.TAKING), Event(30.0, "p", Kind.PUTTING, 9)]
    assert examine(idle, left=[], last_taken={}).longest_wait < 1.0


def test_frozen_and_killed_consumers_are_not_stuck() -> None:
    frozen = [Event(2.9, "d", Kind.TAKING), Event(3.1, "d", Kind.FROZEN), Event(20.0, "d", Kind.RESUMED)]
    assert examine([*SOUND, *frozen, Event(20.5, "d", Kind.FAILED)], left=[3], last_taken={}).longest_wait == 0.5
    killed = [Event(2.9, "d", Kind.TAKING), Event(3.1, "d", Kind.KILLED), Event(20.0, "p", Kind.PUTTING, 9)]
    assert examine([*SOUND, *killed], left=[3], last_taken={}).longest_wait < 0.2


def test_an_item_in_the_hands_of_a_frozen_consumer_is_not_there_for_others() -> None:
    frozen = [Event(2.9, "d", Kind.TAKING), Event(3.1, "d", Kind.FROZEN), Event(20.0, "d", Kind.RESUMED)]
    others = [Event(2.9, "e", Kind.TAKING), Event(21.0, "p", Kind.PUTTING, 9)]
    taken = Event(20.1, "d", Kind.TOOK, 3)
    assert examine([*SOUND, *frozen, *others, taken], left=[], last_taken={}).longest_wait < 0.2
