"""Curator's queue: node names, order by text and sequence wrap give the same holder as in a Java program."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.engines.zookeeper import order

READ_WRITE = ("__READ__", "__WRIT__")
ID = "3f0e2a8c-9b1d-4c55-8d49-0d6b3a8f9c11"

uuids = st.uuids().map(str)
numbers = st.integers(-(2**31), 2**31 - 1)
markers = st.sampled_from(["lock-", "lease-", "__READ__", "__WRIT__"])


def written(number: int) -> str:
    """The number as the server appends it: Java's %010d."""
    return f"{number:010d}"


contenders = st.builds(lambda one, number: order.protected(one) + written(number), uuids, numbers)
#: Names with a marker once, twice, without a number, of another recipe, or with none.
foreign = st.lists(st.sampled_from(["lock-", "lease-", *READ_WRITE, "a", "-", "{", "5", "0000000001"]), max_size=5).map(
    "".join
)
children = st.lists(contenders | foreign, unique=True, max_size=12)


def as_curator(child: str, markers: Sequence[str]) -> bytes:
    """Curator's sort key, computed with positions as in its source; Java compares UTF-16 units."""
    for marker in markers:
        index = child.rfind(marker)
        if index >= 0:
            child = child[index + len(marker) :]
    return child.encode("utf-16-be")


# ---- the order


def test_queue_is_ordered_by_sequence_number() -> None:
    first, second, third = (order.protected(f"{name}{ID[1:]}") + written(7 + place) for place, name in enumerate("cab"))
    queue = [third, first, second]
    assert order.ordered(queue) == [first, second, third]
    assert [order.predecessor(queue, one) for one in (first, second, third)] == [None, first, second]
    assert order.predecessor(queue, "gone") is None


def test_foreign_children_are_part_of_the_queue() -> None:
    """They block a Java program too: a client that ignored them would hold the lock together with it."""
    own = order.protected(ID) + written(0)
    assert order.ordered(["zeta", own, "-odd", "lock-0000000000"]) == ["-odd", own, "lock-0000000000", "zeta"]
    assert order.predecessor([own, "-odd"], own) == "-odd"
    assert order.predecessor([own, "lock-9-lock--1"], own) == "lock-9-lock--1"  # only the last marker counts


def test_order_after_the_wrap_is_still_by_text() -> None:
    queue = [order.protected(ID) + written(number) for number in (-(2**31), -(2**31) + 1, -1, 0, 2**31 - 1)]
    assert queue[0].endswith("lock--2147483648")
    by_text = [order.sequence_of(child) for child in order.ordered(queue)]
    assert by_text == [-1, -2147483647, -2147483648, 0, 2147483647]


@given(children, st.sampled_from([order.MUTEX, READ_WRITE, ("lease-",)]))
def test_order_is_the_same_as_curators(children: list[str], markers: tuple[str, ...]) -> None:
    assert order.ordered(children, markers) == sorted(children, key=lambda child: as_curator(child, markers))


@given(children.filter(bool), st.data())
def test_predecessor_is_at_the_position_before(children: list[str], data: st.DataObject) -> None:
    own = data.draw(st.sampled_from(children))
    queue = order.ordered(children)
    place = queue.index(own)
    assert order.predecessor(children, own) == (queue[place - 1] if place else None)


@given(st.permutations([f"{one}-lock-0000000001" for one in "dcab"]))
def test_children_with_equal_keys_keep_their_order(children: list[str]) -> None:
    assert order.ordered(children) == children


@given(st.lists(numbers, unique=True, min_size=1), st.data())
def test_readers_and_writers_are_ordered_by_number_only(given_out: list[int], data: st.DataObject) -> None:
    """Both markers are cut off in turn, so the kind of a node does not affect the order."""
    kinds = data.draw(st.lists(st.sampled_from(READ_WRITE), min_size=len(given_out), max_size=len(given_out)))
    queue = [order.protected(ID, kind) + written(number) for kind, number in zip(kinds, given_out, strict=True)]
    found = [order.sequence_of(child, READ_WRITE) for child in order.ordered(queue, READ_WRITE)]
    assert found == sorted(given_out, key=written)


# ---- names of contenders


def test_contender_name_has_protection_id_and_marker() -> None:
    assert order.protected(ID) == f"_c_{ID}-lock-"
    assert order.protected(ID, "__WRIT__") == f"_c_{ID}-__WRIT__"


@given(uuids, markers, numbers)
def test_sequence_number_is_read_from_the_name(one: str, marker: str, number: int) -> None:
    """Negative ones too: the second minus in ``lock--000000005`` is the sign, ``lock-0000000005`` has none."""
    assert order.sequence_of(order.protected(one, marker) + written(number), (marker,)) == number


@pytest.mark.parametrize(
    "child",
    [
        "0000000001", "lock-", "lock-000000001", "lock-00000000012", "lock-+000000001", "lock-x000000001", "zeta",
        "x__lock__0000000001", "lock-0000000001-lock-", "lock-٠٠٠٠٠٠٠٠٠١", "lock-0000000001\n", "lock--00000001",
    ],
)  # fmt: skip
def test_other_children_have_no_sequence_number(child: str) -> None:
    assert order.sequence_of(child) is None


@given(children, uuids, st.lists(numbers, unique=True, max_size=2))
def test_own_children_are_found_by_their_id(children: list[str], one: str, given_out: list[int]) -> None:
    own = [order.protected(one) + written(number) for number in given_out]
    assert order.find_own([*own, *children], one) == order.ordered(own)


def test_id_is_matched_as_a_whole_and_only_at_the_start_of_a_name() -> None:
    own = order.protected(ID) + written(1)
    assert order.find_own([f"x{own}", own.replace("-lock-", "0-lock-"), f"_c_{ID}", own.upper()], ID) == []
    assert order.find_own([f"_c_{ID}-__READ__0000000001"], ID) == [f"_c_{ID}-__READ__0000000001"]


# ---- the wrap


@pytest.mark.parametrize(
    "number, near",
    [
        (0, False),
        (2**31 - 10**6, False),
        (2**31 - 10**6 + 1, True),
        (2**31 - 1, True),
        (-(2**31), True),
        (-1, True),
    ],
)
def test_wrap_is_near_from_a_million_numbers_before_it(number: int, near: bool) -> None:
    assert order.is_near_wrap(number) is near
