"""Latches: rules, lost replies at each step, late duplicates, states that holdfast has not written."""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast._runtime.blocking import run
from holdfast.engines.registers import Listener, RegisterKey
from holdfast.primitives.latch import LatchState
from holdfast.primitives.shared_state import SharedState
from tests.primitives.lost_replies import Loss, LossyRequests, WithRegisters
from tests.primitives.lost_replies import lose_of_registers as lose


@pytest.fixture
def url() -> str:
    return f"memory:{uuid.uuid4().hex}"


@pytest.fixture
def client(url: str) -> Iterator[holdfast.Client]:
    with holdfast.connect(url) as client:
        yield client


@pytest.fixture
def asleep(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once a waiter has looked. It listens a moment earlier, and does not know the round then."""
    asleep, sleep = threading.Event(), SharedState.sleep

    async def noted(self: SharedState, listener: Listener, deadline: float | None) -> bool:
        asleep.set()
        return await sleep(self, listener, deadline)

    monkeypatch.setattr(SharedState, "sleep", noted)
    return asleep


def registers_of(client: holdfast.Client) -> dict[Any, Any]:
    session: Any = client._open().session
    registers: dict[Any, Any] = session.store.registers
    return registers


# ---- rules


def test_count_down_of_the_last_opens_and_begins_the_next_round() -> None:
    state = LatchState.new("x", 2).counted_down("a", 1)
    assert (state.left, state.round, state.open) == (1, 0, False)
    state = state.counted_down("b", 1)
    assert (state.left, state.round, state.open) == (0, 1, True)
    assert state.counted_down("c", 1) == state
    assert (state.reset("a", 2, None).left, state.reset("a", 2, 5).size, state.reset("a", 2, None).round) == (2, 5, 1)


def test_marks_are_found_for_two_rounds_and_then_dropped() -> None:
    state = LatchState.new("x", 1).counted_down("a", 1)
    for number in range(1, 3):
        assert state.has("a", 1)
        assert not state.has("a", 2)
        state = state.reset("b", 2 * number, None).counted_down("b", 2 * number + 1)
    assert state.round == 3
    assert set(state.marks) == {"b"}


def test_marks_of_one_lane_do_not_grow() -> None:
    state = LatchState.new("x", 500)
    for number in range(1, 500):
        state = state.counted_down("a", number)
    assert len(json.dumps(state)) < 100
    assert LatchState.parsed(json.loads(json.dumps(state))) == state


@pytest.mark.parametrize("value", [{}, 7, "x", [], ["x", 0, -1, 1, {}], ["x", 0, 1, 1, []], ["x", 0, True, 1, {}]])
def test_state_of_another_form_is_not_taken_for_a_latch(value: Any) -> None:
    assert LatchState.parsed(value) is None


# ---- faults


def test_count_down_whose_reply_is_lost_counts_once(client: holdfast.Client) -> None:
    latch = client.latch("a", 3)
    lose(client, "swap", "reply", "request", "reply")
    latch.count_down()
    assert latch.count() == 2


def test_count_down_whose_reply_is_lost_counts_once_beside_others(client: holdfast.Client, url: str) -> None:
    """Fault: the reply is lost, others count down before it is asked for again, and it is counted twice."""
    latch = client.latch("a", 9)
    core = client._open()
    session: Any = core.session

    class Interleaved(LossyRequests):
        def __getattr__(self, name: str) -> Any:
            if name == "swap" and self.calls == 1:
                self.calls = 2
                with holdfast.connect(url) as other:
                    for _ in range(3):
                        other.latch("a", 9).count_down()
            return super().__getattr__(name)

    core.session = WithRegisters(session, Interleaved(session.registers, "swap", ["reply"]))
    latch.count_down()
    core.session = session
    assert latch.count() == 5


def test_reset_whose_reply_is_lost_does_not_undo_what_was_counted_since(client: holdfast.Client) -> None:
    """Fault: the reset takes effect, others count down before it is asked for again, and it is done twice."""
    latch = client.latch("a", 3)
    latch.count_down()
    core = client._open()
    session: Any = core.session

    class Interleaved(LossyRequests):
        def __getattr__(self, name: str) -> Any:
            if name == "swap" and self.calls == 1:
                self.calls = 2
                core.session, lossy = session, core.session
                latch.count_down()
                core.session = lossy
            return super().__getattr__(name)

    core.session = WithRegisters(session, Interleaved(session.registers, "swap", ["reply"]))
    latch.reset()
    core.session = session
    assert latch.count() == 2


def test_late_duplicate_of_a_count_down_does_not_count(client: holdfast.Client) -> None:
    latch = client.latch("a", 3)
    requests = lose(client, "swap", "late", "reply")
    latch.count_down()
    run(requests.deliver())
    latch.count_down()
    assert latch.count() == 1


def test_two_callers_of_one_object_with_lost_replies_count_twice(client: holdfast.Client) -> None:
    """Fault: operation numbers shared by two threads: the later one hides that the earlier one did not take effect."""
    latch = client.latch("a", 3)
    lose(client, "swap", "request", "reply", "request", "reply")
    threads = [threading.Thread(target=latch.count_down) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert latch.count() == 1


def test_unreachable_engine_is_an_error_and_no_answer(url: str) -> None:
    with holdfast.connect(url, unavailable_after=0.3) as client:
        latch = client.latch("a", 1)
        losses: list[Loss] = ["request"] * 200
        lose(client, "peek", *losses)
        for call in (latch.count, latch.count_down, lambda: latch.wait(5)):
            with pytest.raises(holdfast.EngineUnavailable):
                call()


def test_waiter_does_not_miss_that_the_latch_was_opened_and_reset(
    client: holdfast.Client, url: str, asleep: threading.Event
) -> None:
    latch, through = client.latch("a", 1), list[bool]()
    thread = threading.Thread(target=lambda: through.append(latch.wait(20)))
    thread.start()
    assert asleep.wait(20)
    with holdfast.connect(url) as other:
        other.latch("a", 1).count_down()
        other.latch("a", 1).reset()
    thread.join()
    assert through == [True]


def test_waiter_that_came_before_the_latch_does_not_miss_that_it_was_opened_and_reset(
    client: holdfast.Client, asleep: threading.Event
) -> None:
    unmade, latch, through = client.latch("a", None), client.latch("a", 1), list[bool]()
    thread = threading.Thread(target=lambda: through.append(unmade.wait(20)))
    thread.start()
    assert asleep.wait(20)
    latch.count_down()
    latch.reset()
    thread.join()
    assert through == [True]


def test_latch_whose_state_was_lost_is_made_again_and_waiters_wait_for_it(
    client: holdfast.Client, asleep: threading.Event
) -> None:
    """Fault: rounds begin at 0 again, and a waiter of round 3 would wait until the fourth one."""
    latch, through = client.latch("a", 1), list[bool]()
    for _ in range(3):
        latch.count_down()
        latch.reset()
    thread = threading.Thread(target=lambda: through.append(latch.wait(20)))
    thread.start()
    assert asleep.wait(20)
    registers = registers_of(client)
    (place,) = registers
    registers[place] = registers[place]._replace(value=b"", version=0)
    client.latch("a", 1).count_down()
    thread.join()
    assert through == [True]


def test_state_that_holdfast_has_not_written_is_refused(client: holdfast.Client) -> None:
    registers: Any = client._open().session.registers
    for version, value in enumerate([b"\xff", b"{}", b'["x"]']):
        run(registers.swap(RegisterKey("a", "latch"), version, value, 1.0))
        with pytest.raises(holdfast.EngineRefused, match="latch 'a'"):
            client.latch("a", 1).count()


@pytest.mark.parametrize("count", [0, -1, True, 1.5, "3", 10**9])
def test_count_that_cannot_be_is_refused(client: holdfast.Client, count: Any) -> None:
    with pytest.raises(holdfast.UsageError, match="give a number"):
        client.latch("a", count)


def test_other_count_than_that_of_the_latch_is_logged_once(
    client: holdfast.Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.latch("a", 3).count_down()
    other = client.latch("a", 5)
    with caplog.at_level(logging.WARNING, "holdfast.latch"):
        assert [other.count(), other.count()] == [2, 2]
    assert len(caplog.records) == 1
