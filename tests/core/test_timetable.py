"""The watchdog's timetable: nobody is forgotten, nobody comes late, nobody comes twice."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from holdfast._core.grant import Grant
from holdfast._core.policy import Policy
from holdfast._core.timetable import Timetable
from holdfast.engines.base import Claim


def grant(ttl: float = 30.0, name: str = "a") -> Grant:
    return Grant(Claim(name, "client:1", ttl), Policy(name, name, ttl), sent=0.0, last_token=1)


def test_grants_of_one_ttl_come_up_together() -> None:
    """Ten thousand locks are renewed in a few batches, not in ten thousand."""
    table = Timetable()
    for number in range(1000):
        table.add(grant(), 100.0 + number / 1000)
    assert len(table.pop_due(101.1)) == 1000
    assert table.next_time() is None


def test_a_due_time_is_rounded_down_never_up() -> None:
    table = Timetable()
    for due in (0.3, 17.999, 1e6 + 1 / 3):
        entered = table.add(grant(), due)
        assert due - 1.0 <= entered <= due


def test_an_exact_time_is_kept() -> None:
    table = Timetable()
    assert table.add(grant(), 12.3456, exact=True) == 12.3456
    assert table.next_time() == 12.3456


def test_a_discarded_grant_does_not_come_up() -> None:
    table, one, two = Timetable(), grant(), grant()
    table.add(one, 10.0)
    table.add(two, 10.0)
    table.discard(one)
    table.discard(one)  # twice does no harm
    assert table.grants() == [two]
    assert table.pop_due(10.0) == [two]


def test_empty_buckets_go_when_their_time_comes() -> None:
    table = Timetable()
    for number in range(100):
        one = grant()
        table.add(one, float(number))
        table.discard(one)
    assert table.pop_due(1000.0) == []
    assert table.next_time() is None


class TimetableMachine(RuleBasedStateMachine):
    """Against a dictionary of due times."""

    grants = Bundle("grants")

    def __init__(self) -> None:
        super().__init__()
        self.table = Timetable()
        self.due: dict[Grant, float] = {}
        self.now = 0.0

    @rule(target=grants, ttl=st.sampled_from([0.3, 3.0, 30.0]))
    def make(self, ttl: float) -> Grant:
        return grant(ttl)

    @rule(one=grants, after=st.floats(0, 60), exact=st.booleans())
    def add(self, one: Grant, after: float, exact: bool) -> None:
        entered = self.table.add(one, self.now + after, exact=exact)
        assert entered <= self.now + after
        self.due[one] = entered

    @rule(one=grants)
    def discard(self, one: Grant) -> None:
        self.table.discard(one)
        self.due.pop(one, None)

    @rule(seconds=st.floats(0, 30))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        came = self.table.pop_due(self.now)
        assert len(came) == len(set(came))
        assert set(came) == {one for one, due in self.due.items() if due <= self.now}
        for one in came:
            del self.due[one]

    @invariant()
    def knows_all_and_wakes_in_time(self) -> None:
        assert set(self.table.grants()) == set(self.due)
        if self.due:
            next_time = self.table.next_time()
            assert next_time is not None
            assert next_time <= min(self.due.values())


TestTimetableMachine = TimetableMachine.TestCase
