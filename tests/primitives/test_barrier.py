"""Barriers: rules, lost replies, a frozen member, members that do not agree."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast.primitives.barrier import BarrierState
from tests.primitives.lost_replies import lose_of_registers
from tests.support.waiting import eventually


@pytest.fixture
def client() -> Iterator[holdfast.Client]:
    with holdfast.connect(f"memory:{uuid.uuid4().hex}") as client:
        yield client


def state_of(client: holdfast.Client) -> BarrierState | None:
    session: Any = client._open().session
    values = [register.value for place, register in list(session.store.registers.items()) if place[1] == "barrier"]
    return BarrierState.parsed(json.loads(values[0])) if values and values[0] else None


def in_thread(call: Any) -> tuple[threading.Thread, list[Any]]:
    answers: list[Any] = []

    def run() -> None:
        try:
            answers.append(call())
        except holdfast.LockError as error:
            answers.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, answers


# ---- rules


def test_last_member_opens_and_the_last_to_leave_begins_the_next_round() -> None:
    state = BarrierState.new("x").joined("a", 2)
    assert not state.open
    assert state.last_is("b", 2)
    state = state.joined("b", 2)
    assert state.entered("a")
    assert state.entered("b")
    assert state.joined("c", 2) == state, "a late comer is not added to an open round"
    assert not state.is_over("x", 0)
    state = state.without({"a"})
    assert not state.is_over("x", 0)
    state = state.without({"b"})
    assert state.is_over("x", 0)
    assert (state.round, state.open, state.members) == (1, False, ())


def test_members_that_left_before_the_opening_do_not_end_the_round() -> None:
    state = BarrierState.new("x").joined("a", 2).without({"a"})
    assert (state.round, state.open, state.members) == (0, False, ())


@pytest.mark.parametrize("value", [{}, 7, [], ["x", 0, 1, 2, []], ["x", 0, True, 2, "ab"], [1, 0, True, 2, []]])
def test_state_of_another_form_is_not_taken_for_a_barrier(value: Any) -> None:
    assert BarrierState.parsed(value) is None


# ---- faults


def test_lost_replies_do_not_add_a_member_twice_or_keep_one(client: holdfast.Client) -> None:
    first, second = client.barrier("a", 2), client.barrier("a", 2)
    lose_of_registers(client, "swap", "reply", "request", "reply", "reply")
    thread, answers = in_thread(lambda: first.enter(20))
    eventually(lambda: (state := state_of(client)) and len(state.members) == 1)
    lose_of_registers(client, "swap", "reply", "reply")
    assert second.enter(20)
    thread.join()
    assert answers == [True]
    assert second.leave(0) is False
    assert first.leave(20) is True
    state = state_of(client)
    assert state is not None
    assert (state.round, state.open, state.members) == (1, False, ())


def test_members_that_do_not_agree_about_their_number_are_refused(client: holdfast.Client) -> None:
    two = client.barrier("a", 2)
    thread, answers = in_thread(lambda: two.enter(20))
    eventually(lambda: (state := state_of(client)) and state.members)
    with pytest.raises(holdfast.UsageError, match="2 parties in this round, and not 3"):
        client.barrier("a", 3).enter(5)
    eventually(lambda: len(client.inspect("a").holders) == 1)  # the one that was refused holds no permit
    other = client.barrier("a", 2)
    assert other.enter(20)
    thread.join()
    assert answers == [True]
    assert two.leave(0) is False
    assert other.leave(20) is True


def test_member_whose_membership_was_lost_learns_it_when_it_leaves(client: holdfast.Client) -> None:
    alone = client.barrier("a", 1)
    assert alone.enter()
    assert client.break_("a")
    with pytest.raises(holdfast.LockLost):
        alone.leave()
    assert alone.enter(20), "the round of the lost member is over"
    assert alone.leave(20)


def test_member_whose_membership_is_lost_while_it_waits_gets_an_error(client: holdfast.Client) -> None:
    waiting = client.barrier("a", 2)
    thread, answers = in_thread(lambda: waiting.enter(20))
    eventually(lambda: (state := state_of(client)) and state.members)
    client.break_("a")
    thread.join()
    (error,) = answers
    assert isinstance(error, holdfast.LockLost)


@pytest.mark.parametrize("parties", [0, -1, True, 1.5, "3", 10**9])
def test_number_of_parties_that_cannot_be_is_refused(client: holdfast.Client, parties: Any) -> None:
    with pytest.raises(holdfast.UsageError, match="give a number"):
        client.barrier("a", parties)
