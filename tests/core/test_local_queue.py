"""The queue inside the process: first come, first served; every slot is given up; hand-over only where it is safe."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from holdfast._core.grant import Grant
from holdfast._core.local_queue import MAX_CHAIN_SECONDS, MAX_HANDOVERS, LocalQueue, LocalWaiter, Turn, may_hand_on
from holdfast._core.policy import Policy
from holdfast._runtime.blocking import BlockingEvent
from holdfast.engines.base import Attempt, Claim

KEY = "a"


def policy(**settings: Any) -> Policy:
    return Policy(KEY, KEY, **{"ttl": 30.0} | settings)


def waiter(caller: object = None, since: float = 0.0, **settings: Any) -> LocalWaiter:
    return LocalWaiter(caller or object(), policy(**settings), BlockingEvent(), since)


def grant(tokens: int = MAX_HANDOVERS + 1, **settings: Any) -> Grant:
    own = policy(**settings)
    given = Grant(Attempt(Claim(KEY, "client:1", own.ttl, tokens=tokens)), own, sent=100.0, last_token=1000)
    given.draw_token()  # the first holder has it
    return given


def test_the_head_of_the_queue_inherits() -> None:
    queue, holder, one, two = LocalQueue(), object(), waiter(), waiter()
    assert queue.occupy(KEY, holder)
    assert not queue.occupy(KEY, object())
    queue.join(KEY, one)
    queue.join(KEY, two)
    assert queue.waiting(KEY) == 2
    given = grant()
    assert queue.hand_over(given, holder, 100.001) is one
    assert (one.turn, one.inherited) == (Turn.INHERIT, given)
    assert queue.hand_over(given, one.caller, 100.002) is two
    assert queue.hand_over(given, two.caller, 100.003) is None


def test_vacating_gives_the_turn_to_the_next_and_frees_the_slot_after_the_last() -> None:
    queue, holder, one = LocalQueue(), object(), waiter()
    queue.occupy(KEY, holder)
    queue.join(KEY, one)
    assert queue.vacate(KEY, holder) is one
    assert one.turn is Turn.CONTEND
    assert queue.vacate(KEY, one.caller) is None
    assert queue.occupy(KEY, object())


def test_only_the_occupant_gives_up_the_slot_and_repeating_it_has_no_effect() -> None:
    queue, holder, one = LocalQueue(), object(), waiter()
    queue.occupy(KEY, holder)
    queue.join(KEY, one)
    assert queue.vacate(KEY, object()) is None
    assert queue.hand_over(grant(), object(), 100.001) is None
    assert queue.vacate(KEY, holder) is one
    assert queue.vacate(KEY, holder) is None
    assert one.turn is Turn.CONTEND


def test_a_waiter_leaves_freely_before_its_turn_and_must_pass_the_turn_on_afterwards() -> None:
    queue, holder, one, two = LocalQueue(), object(), waiter(), waiter()
    queue.occupy(KEY, holder)
    queue.join(KEY, one)
    queue.join(KEY, two)
    assert queue.leave(KEY, one)
    assert queue.vacate(KEY, holder) is two
    assert not queue.leave(KEY, two)


def test_only_callers_that_have_waited_long_enough_are_turned_away() -> None:
    queue, holder, waiters = LocalQueue(), object(), [waiter(since=1.0), waiter(since=9.0), waiter(since=2.0)]
    queue.occupy(KEY, holder)
    for one in waiters:
        queue.join(KEY, one)
    assert queue.turn_away(KEY, 5.0) == [waiters[0], waiters[2]]
    assert [one.turn for one in waiters] == [Turn.UNREACHABLE, Turn.WAITING, Turn.UNREACHABLE]
    assert queue.vacate(KEY, holder) is waiters[1]


def test_closing_turns_every_waiter_away() -> None:
    queue, one, two = LocalQueue(), waiter(), waiter()
    queue.occupy("a", object())
    queue.occupy("b", object())
    queue.join("a", one)
    queue.join("b", two)
    queue.close()
    assert {one.turn, two.turn} == {Turn.CLOSED}


@pytest.mark.parametrize("other", [{"ttl": 29.0}, {"renew": False}, {"replicas": 1}, {"fair": True}], ids=str)
def test_no_hand_over_between_different_policies(other: dict[str, Any]) -> None:
    assert may_hand_on(grant(), policy(), 100.001)
    assert not may_hand_on(grant(), policy(**other), 100.001)
    assert not may_hand_on(grant(**other), policy(), 100.001)


def test_no_hand_over_of_a_lost_grant() -> None:
    given = grant()
    given.lost = "broken"
    assert not may_hand_on(given, policy(), 100.001)


def test_no_hand_over_of_a_grant_renewed_to_another_ttl() -> None:
    given = grant()
    given.ttl = 60.0
    assert not may_hand_on(given, policy(), 100.001)


def test_no_hand_over_without_a_token_left() -> None:
    assert not may_hand_on(grant(tokens=1), policy(), 100.001)
    given = grant()
    for _ in range(MAX_HANDOVERS):
        assert may_hand_on(given, policy(), 100.001)
        given.draw_token()
    assert not may_hand_on(given, policy(), 100.001)
    with pytest.raises(RuntimeError, match="used up"):
        given.draw_token()


def test_no_hand_over_after_ten_milliseconds_or_half_the_lease() -> None:
    assert may_hand_on(grant(), policy(), 100.0 + MAX_CHAIN_SECONDS - 0.001)
    assert not may_hand_on(grant(), policy(), 100.0 + MAX_CHAIN_SECONDS + 0.001)
    brief = grant(ttl=0.1)
    brief.since = 100.2  # as if the chain were young: what counts here is the lease
    assert not may_hand_on(brief, policy(ttl=0.1), 100.06)


def test_tokens_of_a_block_grow_and_end_with_the_one_that_was_granted() -> None:
    given = Grant(Attempt(Claim(KEY, "client:1", 30.0, tokens=5)), policy(), sent=0.0, last_token=1000)
    assert [given.draw_token() for _ in range(5)] == [996, 997, 998, 999, 1000]


def offered(queue: LocalQueue, given: Grant, *waiters: LocalWaiter) -> None:
    """A hold ends: ``given`` is handed over to the first of ``waiters``."""
    holder = object()
    assert queue.occupy(KEY, holder)
    for one in waiters:
        queue.join(KEY, one)
    assert queue.hand_over(given, holder, 100.001) is waiters[0]


def test_what_was_not_accepted_is_taken_back_and_its_waiter_is_the_head_again() -> None:
    queue, given, one, two, late = LocalQueue(), grant(), waiter(), waiter(), waiter()
    offered(queue, given, one, two)
    assert queue.take_back(KEY, late, 100.002) is given
    assert (late.turn, late.inherited, queue.occupant(KEY)) == (Turn.INHERIT, given, late.caller)
    assert one.turn is Turn.WAITING
    assert not queue.accept(KEY, one)
    assert queue.hand_over(given, late.caller, 100.003) is one
    assert queue.accept(KEY, one)
    assert queue.hand_over(given, one.caller, 100.004) is two


def test_what_was_accepted_or_taken_back_is_not_taken_back() -> None:
    queue, given, one, late, later = LocalQueue(), grant(), waiter(), waiter(), waiter()
    offered(queue, given, one)
    assert queue.take_back(KEY, late, 100.002) is given
    assert queue.take_back(KEY, later, 100.003) is None
    assert queue.hand_over(given, late.caller, 100.004) is one
    assert queue.accept(KEY, one)
    assert queue.take_back(KEY, later, 100.005) is None
    assert later.turn is Turn.WAITING
    assert queue.occupant(KEY) is one.caller


def test_what_was_passed_on_is_not_taken_back_from_the_waiter_that_has_left() -> None:
    queue, given, one, late = LocalQueue(), grant(), waiter(), waiter()
    offered(queue, given, one)
    assert not queue.leave(KEY, one)
    assert queue.take_back(KEY, late, 100.002) is None
    queue.vacate(KEY, one.caller)
    queue.offers[KEY] = one  # as if it had been interrupted before
    assert queue.take_back(KEY, late, 100.003) is None


@pytest.mark.parametrize("other", [{"ttl": 29.0}, {"renew": False}, {"replicas": 1}, {"fair": True}], ids=str)
def test_a_caller_with_another_policy_takes_nothing_back(other: dict[str, Any]) -> None:
    queue, one = LocalQueue(), waiter()
    offered(queue, grant(), one)
    assert queue.take_back(KEY, waiter(**other), 100.002) is None
    assert queue.accept(KEY, one)


def test_nothing_is_taken_back_once_a_release_is_due() -> None:
    for given, now in ((grant(), 100.0 + MAX_CHAIN_SECONDS + 0.001), (grant(tokens=2), 100.002)):
        queue, one = LocalQueue(), waiter()
        offered(queue, given, one)
        given.next_token += given.tokens == 2  # as if it were used up
        assert queue.take_back(KEY, waiter(), now) is None
        assert queue.accept(KEY, one)


@pytest.mark.parametrize("ahead", [0, 1, 5])
def test_a_waiter_is_overtaken_a_bounded_number_of_times(ahead: int) -> None:
    """One caller comes back after each hold, and always before the head has run."""
    queue, holder, last = LocalQueue(), object(), waiter()
    queue.occupy(KEY, holder)
    for one in [waiter() for _ in range(ahead)]:
        queue.join(KEY, one)
    queue.join(KEY, last)
    occupant, overtaken = holder, 0
    while last.turn is not Turn.CONTEND:
        given = grant()  # by the engine, to the present occupant
        while queue.hand_over(given, occupant, 100.001) is not None:
            comes = waiter()
            assert queue.take_back(KEY, comes, 100.001) is given
            given.draw_token()
            occupant = comes.caller
            overtaken += 1
        following = queue.vacate(KEY, occupant)
        assert following is not None
        occupant = following.caller
    assert overtaken == (ahead + 1) * MAX_HANDOVERS


class QueueMachine(RuleBasedStateMachine):
    """Callers come, wait, get their turn and leave at any moment: at most one has the slot, and it is never lost."""

    waiting = Bundle("waiting")

    def __init__(self) -> None:
        super().__init__()
        self.queue = LocalQueue()
        self.occupant: object | None = None
        self.waiters: list[LocalWaiter] = []
        self.offered: LocalWaiter | None = None

    @rule(target=waiting)
    def come(self) -> LocalWaiter:
        one = waiter()
        if self.queue.occupy(KEY, one.caller):
            assert self.occupant is None
            assert not self.waiters
            self.occupant = one.caller
            one.turn = Turn.CONTEND
        else:
            assert self.occupant is not None
            self.queue.join(KEY, one)
            self.waiters.append(one)
        return one

    @precondition(lambda self: self.occupant is not None)
    @rule(hand_on=st.booleans())
    def give_up(self, hand_on: bool) -> None:
        following = self.queue.hand_over(grant(), self.occupant, 100.001) if hand_on else None
        self.offered = following
        if following is None:
            following = self.queue.vacate(KEY, self.occupant)
        expected = self.waiters.pop(0) if self.waiters else None
        assert following is expected
        self.occupant = None if following is None else following.caller

    @rule(target=waiting)
    def overtake(self) -> LocalWaiter:
        one = waiter()
        taken = self.queue.take_back(KEY, one, 100.001)
        assert (taken is None) == (self.offered is None)
        if self.offered is not None:
            assert self.offered.caller is self.occupant
            self.waiters.insert(0, self.offered)
            self.occupant, self.offered = one.caller, None
        else:
            one.turn = Turn.UNREACHABLE  # it was never there
        return one

    @rule(one=waiting)
    def run(self, one: LocalWaiter) -> None:
        assert self.queue.accept(KEY, one) == (one not in self.waiters)
        if one is self.offered:
            self.offered = None

    @rule(one=consumes(waiting))
    def leave(self, one: LocalWaiter) -> None:
        if one is self.offered:
            self.offered = None
        if self.queue.leave(KEY, one):
            self.waiters.remove(one)
        elif one.caller is self.occupant:
            self.give_up(hand_on=False)

    @invariant()
    def agrees(self) -> None:
        assert self.queue.waiting(KEY) == len(self.waiters)
        assert all(one.turn is Turn.WAITING for one in self.waiters)


TestQueueMachine = QueueMachine.TestCase
