"""Since when the leader counts: by the word before, and never by more than it can have heard. Pure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.engines.zookeeper.heartbeat import Heartbeat

TICK = 2.0
PING = -2


def exchange(pulse: Heartbeat, sent: float, answered: float, xid: int = 1) -> None:
    pulse.sent(xid, sent)
    pulse.answered(xid, answered)


def test_a_new_connection_is_the_leaders_own_word() -> None:
    pulse = Heartbeat(TICK)
    assert pulse.known(0.0) == float("-inf")
    pulse.begin(5.0)
    assert pulse.known(5.5) == pulse.known(50.0) == 5.0


def test_a_word_counts_a_tick_after_its_answer() -> None:
    pulse = Heartbeat(TICK)
    pulse.begin(0.0)
    exchange(pulse, sent=10.0, answered=10.5)
    assert pulse.known(12.4) == 0.0
    assert pulse.known(12.5) == 10.0


def test_a_word_without_an_answer_does_not_count() -> None:
    pulse = Heartbeat(TICK)
    pulse.begin(0.0)
    pulse.sent(1, 10.0)
    assert pulse.known(100.0) == 0.0
    assert pulse.unanswered_since() == 10.0
    pulse.answered(1, 100.0)
    assert pulse.unanswered_since() is None
    assert pulse.known(102.0) == 10.0, "it may have arrived when it was sent"


def test_a_ping_may_overtake_and_is_a_word_too() -> None:
    pulse = Heartbeat(TICK)
    pulse.begin(0.0)
    pulse.sent(1, 10.0)
    exchange(pulse, sent=11.0, answered=11.1, xid=PING)
    assert pulse.known(20.0) == 11.0
    assert pulse.unanswered_since() == 10.0


def test_what_was_not_answered_on_the_old_connection_is_not_waited_for() -> None:
    pulse = Heartbeat(TICK)
    pulse.begin(0.0)
    pulse.sent(1, 10.0)
    pulse.begin(20.0)
    exchange(pulse, sent=30.0, answered=30.1)
    assert pulse.known(40.0) == 30.0


def test_events_and_the_handshake_are_no_words() -> None:
    pulse = Heartbeat(TICK)
    pulse.begin(0.0)
    pulse.sent(None, 5.0)
    pulse.sent(-4, 5.0)
    for xid in (-1, -4):
        pulse.answered(xid, 6.0)
    assert pulse.known(20.0) == 0.0
    assert pulse.unanswered_since() is None


def test_a_thousand_words_a_second_are_few_to_remember() -> None:
    pulse = Heartbeat(TICK)
    pulse.begin(0.0)
    for number in range(100_000):
        exchange(pulse, sent=number / 1000, answered=number / 1000)
    assert len(pulse._answered) < 40
    assert 100.0 - TICK - TICK / 4 < pulse.known(100.0) <= 100.0 - TICK


@given(st.lists(st.tuples(st.floats(0.0, 3.0), st.floats(0.0, 3.0)), max_size=60), st.floats(0.0, 5.0))
def test_it_never_says_more_than_was_heard(words: list[tuple[float, float]], later: float) -> None:
    pulse, now, heard = Heartbeat(TICK), 0.0, [(0.0, -TICK)]
    pulse.begin(0.0)
    for pause, patience in words:
        sent = now = now + pause
        now += patience
        exchange(pulse, sent, now)
        heard.append((sent, now))
    asked = now + later
    known = pulse.known(asked)
    newest = max(sent for sent, answered in heard if answered <= asked - TICK)
    assert newest - TICK / 8 <= known <= newest or known in {sent for sent, _ in heard if sent <= newest}
    assert known <= newest
