"""The rule of fences: admitted, refused and invalid bearers."""

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
def test_newer_or_identical_bearer_is_admitted_and_others_refused(comers: list[Bearer]) -> None:
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
        (Bearer(7, "a"), Bearer(7, "b")),  # diverged servers issued one number to two owners
        (Bearer(7, "a"), Bearer(7, None)),
        (Bearer(7, None), Bearer(7, "a")),
        (Bearer(7, "a"), Bearer(6, "a")),
    ],
)
def test_older_token_or_other_owner_is_refused(seen: Bearer, incoming: Bearer) -> None:
    with pytest.raises(StaleToken):
        admit("r", seen, incoming)


def test_equal_token_of_the_same_owner_passes_without_a_store() -> None:
    assert admit("r", Bearer(7, "a"), Bearer(7, "a")) is False
    assert admit("r", Bearer(7, None), Bearer(7, None)) is False
    assert admit("r", Bearer(7, "a"), Bearer(8, "b")) is True


def test_lease_is_judged_by_token_and_owner_whether_held_or_not() -> None:
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
def test_invalid_bearer_is_refused(token: int, owner: str | None, error: type[Exception]) -> None:
    with pytest.raises(error):
        bearer(token, owner)
