"""The header Holdfast-Fence: written as in RFC 9651, parsed strictly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidName
from holdfast.fencing import InheritedLease
from holdfast.fencing.http import NAME, Presented, header, parse

_texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)


@given(_texts, st.integers(0, 2**63 - 1), st.none() | _texts)
def test_header_round_trips_and_is_ascii(resource: str, token: int, owner: str | None) -> None:
    ((name, value),) = header(resource, token, owner).items()
    assert name == NAME == "Holdfast-Fence"
    assert value.isascii()
    assert value.isprintable()
    assert parse(value) == (resource, token, owner)


@pytest.mark.parametrize(
    "resource, owner, written",
    [
        ("orders", "a:1", '"orders";token="7";owner="a:1"'),
        ("orders", None, '"orders";token="7"'),
        ('say "hi"', "back\\slash", r'"say \"hi\"";token="7";owner="back\\slash"'),
        ("café", "100 % \n", '%"caf%c3%a9";token="7";owner=%"100 %25 %0a"'),
    ],
)
def test_header_format(resource: str, owner: str | None, written: str) -> None:
    assert header(resource, 7, owner) == {"Holdfast-Fence": written}


@pytest.mark.parametrize(
    "value",
    [
        '  "orders"; token="7";   owner="a"  ',
        '"orders";owner="a";token="7"',
        '%"orders";token="7";owner=%"%61"',
    ],
)
def test_other_formats_allowed_by_the_rfc_are_accepted(value: str) -> None:
    assert parse(value) == Presented("orders", 7, "a")


@pytest.mark.parametrize(
    "value",
    [
        "", "orders", '"orders"', '"orders";token', '"orders";token=7', '"orders";token="7', 'orders;token="7"',
        '"orders";token=""', '"orders";token="-1"', '"orders";token="07"', '"orders";token="7.0"', '"orders";token="٧"',
        '"orders";token=" 7"', '"orders";token="9223372036854775808"', '"orders";token="99999999999999999999"',
        '"orders";token=%"7"', '"orders";token="7";token="8"', '"orders";token="7";more="1"', '"orders";token="7";',
        '"orders" ;token="7"', '"orders";Token="7"', '"orders";token="7" x', '"orders";token="7", "b";token="8"',
        '"";token="7"', '"orders";token="7";owner=""', '"a\\nb";token="7"', '"a"b";token="7"', '"caf\xe9";token="7"',
        '"a\tb";token="7"', '%"caf%C3%A9";token="7"', '%"caf%c3";token="7"', '%"a%2";token="7"', '%"%00%zz";token="7"',
        '%"a"b";token="7"', '%"%ed%a0%80";token="7"', '"' + "x" * 513 + '";token="7"', '"' + "x" * 5000 + '";token="7"',
        '"a";token="7";owner="' + "x" * 513 + '"', '"a"\n;token="7"', '"orders";token="7"\n',
    ],
)  # fmt: skip
def test_malformed_header_is_refused(value: str) -> None:
    with pytest.raises(ValueError):
        parse(value)


@given(st.text(st.sampled_from('";=%\\tokenwr7 \xe9\n'), max_size=40))
def test_parser_never_fails_on_arbitrary_text(value: str) -> None:
    try:
        presented = parse(value)
    except ValueError:
        return
    assert parse(header(*presented)["Holdfast-Fence"]) == presented


def test_lease_provides_the_owner_and_invalid_resource_is_refused() -> None:
    lease = InheritedLease("lock", 5, "a")
    assert parse(header("orders", lease)["Holdfast-Fence"]) == ("orders", 5, "a")
    for wrong in ("", "x" * 513, None):
        with pytest.raises(InvalidName):
            header(wrong, 5)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        header("orders", 2**63)
