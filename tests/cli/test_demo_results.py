"""The model behind the picture of the demo."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.demo.results import Outcome, Race, Span


def race(*spans: Span, found: int = 0) -> Race:
    return Race("", pids=[1, 2, 3], times=2, spans=list(spans), found=found)


def test_consecutive_spans_do_not_overlap() -> None:
    one_by_one = race(Span(0, 1, 0), Span(1, 2, 1), Span(5, 6, 0))
    assert one_by_one.timeline(10) == [{0}, {1}, {0}]
    assert one_by_one.most_at_once() == 1


def test_overlap_is_found_in_any_order_of_reports() -> None:
    overlapping = race(Span(4, 9, 2), Span(0, 5, 0), Span(6, 7, 1))
    assert overlapping.timeline(10) == [{0, 2}, {1, 2}]
    assert overlapping.timeline(1) == [{1, 2}]
    assert overlapping.most_at_once() == 2


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9), st.integers(0, 2)), max_size=20))
def test_every_update_is_in_the_picture(drawn: list[tuple[int, int, int]]) -> None:
    # A process makes one update at a time.
    spans, free = [], [0, 0, 0]
    for start, length, lane in drawn:
        start = max(start, free[lane])
        free[lane] = start + length
        spans.append(Span(start, start + length, lane))
    moments = race(*spans).timeline(1000)
    assert len(moments) <= len(spans)
    assert all(any(span.lane in moment for moment in moments) for span in spans)
    assert all(moments)


def test_outcome_is_as_promised_only_if_every_part_is() -> None:
    loses, keeps = race(Span(0, 1, 0), Span(0, 1, 1), found=1), race(Span(0, 1, 0), found=1)
    good = Outcome(loses, keeps, "expired", "refused")
    assert good.as_promised
    assert good.json() == '{"unlocked_lost": 1, "holdfast_lost": 0, "stale_write": "refused"}'
    assert not Outcome(keeps, keeps, "expired", "refused").as_promised
    assert not Outcome(loses, loses, "expired", "refused").as_promised
    assert not Outcome(loses, keeps, None, "refused").as_promised
    assert not Outcome(loses, keeps, "expired", "accepted").as_promised
