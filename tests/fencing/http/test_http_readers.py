"""Leases of read locks in the header, and at the middleware's fence."""

from __future__ import annotations

import pytest

from holdfast.errors import StaleToken
from holdfast.fencing import MemoryFence
from holdfast.fencing.http.header import NAME, header, parse
from holdfast.fencing.http.policy import Policy
from tests.support.readers import Reader


def test_header_of_a_reader_names_its_mode() -> None:
    presented = parse(header("orders", Reader(7))[NAME])
    assert (presented.token, presented.owner, presented.mode) == (7, "reader", "read")
    assert parse(header("orders", 7, "writer")[NAME]).mode == "exclusive"


@pytest.mark.parametrize(
    "value",
    [
        '"r";token="7";mode="read"',
        '"r";token="7";owner="a";mode="write"',
        '"r";token="7";owner="a";mode=%"read"',
    ],
)
def test_header_with_another_mode_is_refused(value: str) -> None:
    with pytest.raises(ValueError):
        parse(value)


def test_middleware_lets_a_reader_pass_and_does_not_store_it() -> None:
    fence = MemoryFence()
    policy: Policy[object] = Policy(fence, "orders", True, None, None)

    def enter(lease: Reader) -> None:
        presented = policy.decide(object(), "GET", [header("orders", lease)[NAME]])
        guard = policy.guard(presented)  # type: ignore[arg-type]
        assert guard is not None
        with guard:
            pass

    enter(Reader(12))
    enter(Reader(10, "writer", "write"))
    enter(Reader(10))
    enter(Reader(10, "writer", "write"))
    with pytest.raises(StaleToken):
        enter(Reader(9))
