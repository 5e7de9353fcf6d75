"""The time from which the leader counts the session: never later than the last request it can have received. Pure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.engines.zookeeper.heartbeat import Heartbeat

TICK = 2.0
PING = -2


def exchange(heartbeat: Heartbeat, sent: float, answered: float, xid: int = 1) -> None:
    heartbeat.sent(xid, sent)
    heartbeat.answered(xid, answered)


def test_new_connection_is_confirmed_by_the_leader() -> None:
    heartbeat = Heartbeat(TICK)
    assert heartbeat.known(0.0) == float("-inf")
    heartbeat.begin(5.0)
    assert heartbeat.known(5.5) == heartbeat.known(50.0) == 5.0


def test_request_counts_one_tick_after_its_answer() -> None:
    heartbeat = Heartbeat(TICK)
    heartbeat.begin(0.0)
    exchange(heartbeat, sent=10.0, answered=10.5)
    assert heartbeat.known(12.4) == 0.0
    assert heartbeat.known(12.5) == 10.0


def test_unanswered_request_does_not_count() -> None:
    heartbeat = Heartbeat(TICK)
    heartbeat.begin(0.0)
    heartbeat.sent(1, 10.0)
    assert heartbeat.known(100.0) == 0.0
    assert heartbeat.unanswered_since() == 10.0
    heartbeat.answered(1, 100.0)
    assert heartbeat.unanswered_since() is None
    assert heartbeat.known(102.0) == 10.0, "it may have arrived when it was sent"


def test_answered_ping_counts_although_an_earlier_request_is_unanswered() -> None:
    heartbeat = Heartbeat(TICK)
    heartbeat.begin(0.0)
    heartbeat.sent(1, 10.0)
    exchange(heartbeat, sent=11.0, answered=11.1, xid=PING)
    assert heartbeat.known(20.0) == 11.0
    assert heartbeat.unanswered_since() == 10.0


def test_unanswered_request_of_the_old_connection_is_forgotten() -> None:
    heartbeat = Heartbeat(TICK)
    heartbeat.begin(0.0)
    heartbeat.sent(1, 10.0)
    heartbeat.begin(20.0)
    exchange(heartbeat, sent=30.0, answered=30.1)
    assert heartbeat.known(40.0) == 30.0


def test_events_and_the_handshake_do_not_count() -> None:
    heartbeat = Heartbeat(TICK)
    heartbeat.begin(0.0)
    heartbeat.sent(None, 5.0)
    heartbeat.sent(-4, 5.0)
    for xid in (-1, -4):
        heartbeat.answered(xid, 6.0)
    assert heartbeat.known(20.0) == 0.0
    assert heartbeat.unanswered_since() is None


def test_a_thousand_requests_a_second_keep_few_entries() -> None:
    heartbeat = Heartbeat(TICK)
    heartbeat.begin(0.0)
    for number in range(100_000):
        exchange(heartbeat, sent=number / 1000, answered=number / 1000)
    assert len(heartbeat._answered) < 40
    assert 100.0 - TICK - TICK / 4 < heartbeat.known(100.0) <= 100.0 - TICK


@given(st.lists(st.tuples(st.floats(0.0, 3.0), st.floats(0.0, 3.0)), max_size=60), st.floats(0.0, 5.0))
def test_known_time_is_never_later_than_the_last_request_received(
    requests: list[tuple[float, float]], later: float
) -> None:
    heartbeat, now, received = Heartbeat(TICK), 0.0, [(0.0, -TICK)]
    heartbeat.begin(0.0)
    for pause, latency in requests:
        sent = now = now + pause
        now += latency
        exchange(heartbeat, sent, now)
        received.append((sent, now))
    asked = now + later
    known = heartbeat.known(asked)
    newest = max(sent for sent, answered in received if answered <= asked - TICK)
    assert newest - TICK / 8 <= known <= newest or known in {sent for sent, _ in received if sent <= newest}
    assert known <= newest
