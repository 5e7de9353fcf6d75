"""The rule itself: what is let through, what is refused, what is no bearer at all."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import StaleToken
from holdfast.fencing.rule import LARGEST_TOKEN, Bearer, admit, bearer

bearers = st.builds(Bearer, st.integers(0, 5) | st.integers(0, LARGEST_TOKEN), st.sampled_from([None, "a", "b"]))


@dataclass
class FakeLease:
    token: int
    owner: str
    held: bool = False


@given(st.lists(bearers, max_size=30))
def test_let_through_if_newer_or_the_very_same_and_refused_otherwise(comers: list[Bearer]) -> None:
    seen: Bearer | None = None
    for incoming in comers:
        if seen is None or incoming.token > seen.token or incoming == seen:
            assert admit("r", seen, incoming) is (incoming != seen)
            seen = incoming
        else:
            with pytest.raises(StaleToken) as refused:
                admit("r", seen, incoming)
            assert (refused.value.resource, refused.value.token, refused.value.seen) == (
                "r",
                incoming.token,
                seen.token,
            )


@pytest.mark.parametrize(
    "seen, incoming",
    [
        (Bearer(7, "a"), Bearer(7, "b")),  # diverged servers gave one number to two owners
        (Bearer(7, "a"), Bearer(7, None)),
        (Bearer(7, None), Bearer(7, "a")),
        (Bearer(7, "a"), Bearer(6, "a")),
    ],
)
def test_refused(seen: Bearer, incoming: Bearer) -> None:
    with pytest.raises(StaleToken):
        admit("r", seen, incoming)


def test_equal_tokens_of_one_owner_pass_and_need_not_be_stored_again() -> None:
    assert admit("r", Bearer(7, "a"), Bearer(7, "a")) is False
    assert admit("r", Bearer(7, None), Bearer(7, None)) is False
    assert admit("r", Bearer(7, "a"), Bearer(8, "b")) is True


def test_a_lease_is_judged_by_token_and_owner_whether_it_is_held_or_not() -> None:
    assert bearer(FakeLease(9, "me", held=True)) == bearer(FakeLease(9, "me", held=False)) == Bearer(9, "me")


@pytest.mark.parametrize(
    "token, owner, error",
    [
        (True, None, TypeError),
        (1.0, None, TypeError),
        ("1", None, TypeError),
        (None, None, TypeError),
        (-1, None, ValueError),
        (LARGEST_TOKEN + 1, None, ValueError),
        (1, "", ValueError),
        (1, "\ud800", ValueError),
        (1, "x" * 513, ValueError),
        (FakeLease(1, "a"), "b", TypeError),
        (FakeLease(True, "a"), None, TypeError),
        (FakeLease(-1, "a"), None, ValueError),
        (FakeLease(1, None), None, TypeError),  # type: ignore[arg-type]
    ],
)
def test_not_a_bearer(token: int, owner: str | None, error: type[Exception]) -> None:
    with pytest.raises(error):
        bearer(token, owner)
