"""Majority results, servers to ask, and proposed tokens: pure decisions, for any answers."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.engines.base import Found, Holder, LockState, RequestFailed, Waiter
from holdfast.engines.redis.dialect.metadata import Block
from holdfast.engines.redis.dialect.operators import decode_ping
from holdfast.engines.redis.dialect.replies import Answer
from holdfast.engines.redis.redlock import quorum
from holdfast.engines.redis.redlock.health import Health
from holdfast.engines.redis.redlock.proposal import Proposal
from holdfast.errors import EngineRefused

servers = st.integers(1, 9)


# ---- the majority


@given(servers)
def test_two_majorities_share_a_server_and_smaller_sets_need_not(count: int) -> None:
    assert 2 * quorum.majority(count) > count
    assert 2 * (quorum.majority(count) - 1) <= count


failures = st.one_of(
    st.booleans().map(lambda maybe: RequestFailed("lost", may_have_happened=maybe)),
    st.just(EngineRefused("no")),
)
tokens = st.integers(1, 2**53 - 1)
votes = st.one_of(tokens.map(lambda token: b"%d" % token), st.integers(-2, 60_000), failures)


@given(st.lists(votes, min_size=1, max_size=9))
def test_each_answer_is_counted_once_by_its_kind(answers: list[Answer]) -> None:
    tally = quorum.tally(answers)
    assert sorted([*tally.granted, *tally.busy, *tally.failed]) == list(range(len(answers)))
    assert all(answers[server] == str(token).encode() for server, token in tally.granted.items())
    assert all(isinstance(answers[server], int) for server in tally.busy)
    assert tally.unresolved == {
        server
        for server, answer in enumerate(answers)
        if isinstance(answer, RequestFailed) and answer.may_have_happened
    }


@given(st.dictionaries(st.integers(0, 8), tokens, min_size=1))
def test_servers_with_a_smaller_token_are_raised_to_the_largest(granted: dict[int, int]) -> None:
    tally = quorum.Tally(granted, {}, {}, frozenset())
    assert {server for server, token in granted.items() if token == tally.token} == set(granted) - set(
        tally.below_token()
    )
    assert all(granted[server] < tally.token for server in tally.below_token())


@given(st.lists(st.one_of(st.just(b"7"), st.integers(-2, 60_000), failures), min_size=1, max_size=9))
def test_busy_time_ends_when_a_majority_may_be_free(answers: list[Answer]) -> None:
    tally, needed = quorum.tally(answers), quorum.majority(len(answers))
    seconds = tally.remaining(needed)
    ends = [answer / 1000 for answer in answers if isinstance(answer, int) and answer >= 0]
    if seconds is None:
        assert len(tally.granted) >= needed or len(tally.granted) + len(ends) < needed
    else:
        assert len(tally.granted) + sum(end <= seconds for end in ends) >= needed
        assert len(tally.granted) + sum(end < seconds for end in ends) < needed


# ---- results of a majority


@given(st.lists(st.sampled_from([*(Found.OURS, Found.GONE, Found.STOLEN), None]), min_size=1, max_size=9))
def test_majority_result_is_independent_of_silent_servers(given_answers: list[Found | None]) -> None:
    """No answer of the silent servers could change the conclusion."""
    answers = [RequestFailed("lost", may_have_happened=True) if each is None else each for each in given_answers]
    needed = quorum.majority(len(answers))
    found = quorum.found(answers, needed)
    count = Counter(given_answers)
    if found is Found.OURS:
        assert count[Found.OURS] >= needed
    elif found is None:
        assert count[Found.OURS] < needed <= count[Found.OURS] + count[None], "it may still be ours"
    else:
        assert count[Found.OURS] + count[None] < needed, "it cannot be ours"
        assert (found is Found.STOLEN) == (count[Found.STOLEN] >= needed)


holders = st.builds(
    Holder,
    st.sampled_from("abc"),
    until=st.none() | st.floats(1, 1e9),
    since=st.none() | st.floats(1, 1e9),
    token=st.none() | tokens,
)
states = st.builds(
    LockState,
    st.just("it"),
    st.lists(holders, max_size=1).map(tuple),
    st.integers(0, 5),
    st.none() | tokens,
    st.none() | st.floats(0, 60),
)


@given(servers, st.data())
def test_views_of_all_servers_are_merged(count: int, data: st.DataObject) -> None:
    seen = data.draw(st.lists(states, max_size=count))
    needed = quorum.majority(count)
    merged = quorum.merged("it", seen, needed)
    by_owner = Counter(holder.owner for state in seen for holder in state.holders)
    assert {holder.owner for holder in merged.holders} == {owner for owner in by_owner if by_owner[owner] >= needed}
    assert merged.token == max((state.token for state in seen if state.token is not None), default=None)
    assert merged.waiters == max((state.waiters for state in seen), default=0)
    if not merged.holders:
        assert merged.remaining is None
        return
    (holder,) = merged.holders
    its = [state for state in seen if state.holders and state.holders[0].owner == holder.owner]
    ends = [state.remaining for state in its]
    end = merged.remaining
    # This many still have it just before the end, and this many no longer afterwards.
    if end is None:
        assert ends.count(None) >= needed
    else:
        assert sum(each is None or each >= end for each in ends) >= needed
        assert sum(each is None or each > end for each in ends) < needed
    assert (
        holder.token == max((state.holders[0].token for state in its), key=lambda token: token or 0, default=None)
        or not holder.token
    )


def test_attempt_of_another_client_does_not_lengthen_a_hold() -> None:
    hold = [LockState("it", (Holder("a", until=105.0),), remaining=5.0)] * 3
    attempt = [LockState("it", (Holder("b", until=130.0),), remaining=30.0)] * 2
    merged = quorum.merged("it", [*attempt, *hold], 3)
    assert [holder.owner for holder in merged.holders] == ["a"]
    assert merged.remaining == 5.0


# ---- health


@given(servers, st.data())
def test_majority_and_every_healthy_server_are_always_asked(count: int, data: st.DataObject) -> None:
    needed = quorum.majority(count)
    health, now, healthy = Health(count), 100.0, set(range(count))
    for _ in range(data.draw(st.integers(0, 20))):
        server = data.draw(st.integers(0, count - 1))
        if data.draw(st.booleans()):
            health.failed(server, now, data.draw(st.floats(0, 3)))
            healthy.discard(server)
        else:
            health.answered(server)
            healthy.add(server)
        now += data.draw(st.floats(0, 0.5))
        asked = health.worth_asking(now)
        assert asked == sorted(set(asked))
        assert len(asked) >= needed
        assert healthy <= set(asked)
        trusted = health.by_trust()
        assert sorted(trusted) == list(range(count))
        assert set(trusted[: len(healthy)]) == healthy
    assert health.worth_asking(now + 11) == list(range(count)), "no server is skipped forever"
    health.skip_none()
    assert health.worth_asking(now) == list(range(count))


def test_slow_server_is_skipped_for_ten_times_its_delay() -> None:
    health = Health(5)
    health.failed(1, 100.0, 0.25)
    health.failed(2, 100.0, 0.0)
    assert health.worth_asking(100.0) == [0, 3, 4]
    assert health.worth_asking(100.06) == [0, 2, 3, 4]
    assert health.worth_asking(102.4) == [0, 2, 3, 4]
    assert health.worth_asking(102.6) == [0, 1, 2, 3, 4]


def test_repeatedly_failing_server_is_skipped_for_up_to_a_second() -> None:
    health = Health(5)
    pauses = []
    for _ in range(10):
        health.failed(0, 100.0, 0.0)
        waited = 0.0
        while 0 not in health.worth_asking(100.0 + waited):
            waited += 0.01
        pauses.append(waited)
    assert pauses == sorted(pauses)
    assert pauses[0] == pytest.approx(0.05, abs=0.011)
    assert pauses[-1] == pytest.approx(1.0, abs=0.011)


# ---- the proposed token


epochs = st.integers(1_700_000_000_000_000, 2_000_000_000_000_000)


def as_read(micros: int) -> int:
    """A server's time as it is read from the reply to a ping."""
    return decode_ping([b"%d" % (micros // 1_000_000), b"%d" % (micros % 1_000_000)])


wrong_clocks = st.integers(-(10**15), 10**15)


@given(
    epochs,
    st.floats(0, 1e6),
    st.lists(st.integers(-50, 50), min_size=2, max_size=9),
    wrong_clocks,
    st.booleans(),
)
def test_one_wrong_clock_does_not_move_the_estimate(
    epoch: int, now: float, errors: list[int], wrong: int, servers: bool
) -> None:
    """The clock of a server or of the client. Also if only two servers of three answer."""
    times = [epoch + error for error in errors]
    own = epoch
    if servers:
        times[0] = max(0, epoch + wrong)
    else:
        own = max(0, epoch + wrong)
    proposal = Proposal(lambda: own / 1e6)
    assert proposal.at(now) is None
    assert abs(proposal.learn([as_read(each) for each in times], now, now) - epoch) <= 51
    estimate = proposal.at(now + 10.0)
    assert estimate is not None
    assert abs(estimate - (epoch + 10_000_000)) <= 52
    assert proposal.at(now + 61.0) is None, "clocks drift: read again"


@given(epochs, st.lists(wrong_clocks, min_size=2, max_size=9), wrong_clocks)
def test_estimate_is_in_the_range_of_the_server_clocks(epoch: int, errors: list[int], wrong: int) -> None:
    times = [max(0, epoch + error) for error in errors]
    proposal = Proposal(lambda: max(0, epoch + wrong) / 1e6)
    assert min(times) <= proposal.learn([as_read(each) for each in times], 0.0, 0.0) <= max(times)


@given(epochs, st.floats(0, 1e6), st.lists(st.floats(0, 59), min_size=2, max_size=9))
def test_later_proposals_are_never_smaller(epoch: int, now: float, later: list[float]) -> None:
    proposal = Proposal()
    proposal.learn([as_read(epoch)], now - 0.01, now)
    estimates = [proposal.at(now + seconds) for seconds in sorted(later)]
    assert None not in estimates
    assert estimates == sorted(each for each in estimates if each is not None)


def test_slow_estimate_is_used_once_and_not_kept() -> None:
    """After a pause the answers contain an outdated time: kept, they would make every token of the next minute too
    small, and after a restart without memory a smaller token could be issued than before."""
    proposal, epoch = Proposal(), 1_800_000_000_000_000
    assert proposal.learn([as_read(epoch)], 100.0, 110.0) == epoch
    assert proposal.at(110.0) is None
    assert proposal.learn([as_read(epoch + 10_000_000)], 110.0, 110.01) == epoch + 10_000_000
    assert proposal.at(110.01) is not None


# ---- the holder with a token


def test_owner_of_a_token_is_found_by_its_largest_number_on_any_server() -> None:
    low, agreed = Block(5, 1), Block(9, 1)
    views = [{"a": low}, {"a": agreed}, {"a": agreed}]
    assert quorum.owner_of(9, views, 3) == "a"
    assert quorum.owner_of(5, views, 3) is None


def test_each_token_of_a_block_belongs_to_its_owner() -> None:
    views = [{"a": Block(20, 4)}] * 2
    assert [quorum.owner_of(token, views, 3) for token in (16, 17, 20, 21)] == [None, "a", "a", None]


def test_attempt_with_the_same_number_on_a_minority_is_no_holder() -> None:
    views = [{"attempt": Block(9, 1)}, {"a": Block(9, 1)}, {"a": Block(9, 1)}]
    assert quorum.owner_of(9, views, 3) == "a"
    assert quorum.owner_of(9, [*views[:1], {}, {}], 3) is None


def test_owner_with_a_possible_majority_including_silent_servers_is_a_holder() -> None:
    assert quorum.owner_of(9, [{"a": Block(9, 1)}, {}], 3) == "a"


def test_owner_without_a_number_has_no_token() -> None:
    assert quorum.owner_of(0, [{"a": None}] * 3, 3) is None


def test_queue_of_the_server_with_most_waiters_is_shown() -> None:
    states = [LockState("a", waiters=count, queue=tuple(map(Waiter, "xyz"[:count]))) for count in (0, 2, 1)]
    merged = quorum.merged("a", states, 2)
    assert (merged.waiters, merged.queue) == (2, (Waiter("x"), Waiter("y")))
