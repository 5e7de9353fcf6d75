"""The states of a hold: the table has the allowed transitions, and none leaves a final state."""

from __future__ import annotations

import ast
import itertools
from pathlib import Path

import pytest

import holdfast
from holdfast._core.states import FINAL, NEXT, Event, State

SOURCE = Path(holdfast.__path__[0])

_EXPECTED = {
    (State.REQUESTED, Event.GRANT): State.HELD,
    (State.REQUESTED, Event.GIVE_UP): State.UNKNOWN,
    (State.HELD, Event.RELEASE): State.RELEASING,
    (State.HELD, Event.LOSE): State.LOST,
    (State.HELD, Event.PARK): State.PARKED,
    (State.PARKED, Event.RESUME): State.HELD,
    (State.PARKED, Event.CONFIRM): State.RELEASED,
    (State.PARKED, Event.LOSE): State.LOST,
    (State.RELEASING, Event.CONFIRM): State.RELEASED,
    (State.RELEASING, Event.GIVE_UP): State.UNKNOWN,
    (State.RELEASING, Event.LOSE): State.LOST,
}


@pytest.mark.parametrize("state, event", [*itertools.product(State, Event)])
def test_the_table_has_exactly_the_allowed_transitions(state: State, event: Event) -> None:
    if (state, event) in _EXPECTED:
        assert NEXT[state, event] is _EXPECTED[state, event]
    else:
        with pytest.raises(RuntimeError, match="internal error in holdfast"):
            NEXT[state, event]


def test_final_states_are_those_without_a_way_out() -> None:
    assert {state for state, _ in _EXPECTED}.isdisjoint(FINAL)
    assert {state for state, _ in _EXPECTED} | FINAL == set(State)


def test_only_a_new_grant_to_a_parked_hold_leads_back_to_held() -> None:
    """Invariant I13, no resurrection."""
    granted, *back = [step for step, state in _EXPECTED.items() if state is State.HELD]
    assert granted == (State.REQUESTED, Event.GRANT)
    assert State.REQUESTED not in _EXPECTED.values()
    assert back == [(State.PARKED, Event.RESUME)]


_CONSTANT_STEPS = (
    "self.state = states.START",
    "self.state = states.REQUESTED",
    "hold.state = AFTER_GRANT",
    "hold.state = AFTER_RELEASE",
    "hold.state = AFTER_CONFIRM",
)


def test_only_the_table_of_states_assigns_a_state() -> None:
    for path in SOURCE.rglob("*.py"):
        text = path.read_text("utf-8")
        if path.name == "states.py" or ("state" not in text and "NEXT" not in text):
            continue
        lines = text.splitlines()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and node.attr == "state" and not isinstance(node.ctx, ast.Load):
                statement = lines[node.lineno - 1].partition("#")[0].strip()
                assert statement in _CONSTANT_STEPS, f"{path.name}:{node.lineno}"
            if isinstance(node, ast.Attribute) and node.attr == "NEXT":
                raise AssertionError(f"{path.name}:{node.lineno} uses the table directly: call advance")
