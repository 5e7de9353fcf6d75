"""Which values may be part of a name, by contract C16."""

from __future__ import annotations

import datetime
import decimal
import enum
import unittest.mock
import uuid
from typing import Any

import pytest

import holdfast
from holdfast.decorator.values import escaped, text_of


class Plain(enum.Enum):
    TEXT = "text"
    NUMBER = 3
    NOTHING = None
    YES = True
    HALF = 0.5
    PAIR = ("a", "b")


class Text(enum.StrEnum):
    A = "a:b"


class Number(enum.IntEnum):
    ONE = 1


class Flags(enum.IntFlag):
    A = 4


class Shouting(str):
    __slots__ = ()

    def __str__(self) -> str:
        return self.upper()


class Wrapped(int):
    def __repr__(self) -> str:
        return "wrapped"

    __str__ = __repr__


ID = uuid.UUID("12345678-1234-5678-1234-567812345678")


@pytest.mark.parametrize(
    "value, text",
    [
        ("a", "a"),
        ("ä:%", "ä:%"),
        (" ", " "),
        (0, "0"),
        (-5, "-5"),
        (10**30, "1" + "0" * 30),
        (ID, str(ID)),
        (datetime.date(2026, 3, 1), "2026-03-01"),
        (Plain.TEXT, "text"),
        (Plain.NUMBER, "3"),
        (Text.A, "a:b"),
        (Number.ONE, "1"),
        (Flags.A, "4"),
        (Shouting("quiet"), "quiet"),
        (Wrapped(7), "7"),
    ],
)
def test_accepted_value_has_exactly_one_text(value: Any, text: str) -> None:
    found = text_of(value, "it")
    assert found == text
    assert type(found) is str


@pytest.mark.parametrize(
    "value, why",
    [
        (None, "None"),
        ("", "is empty"),
        (Shouting(""), "is empty"),
        (True, "a bool"),
        (False, "a bool"),
        (1.0, "a float"),
        (decimal.Decimal(1), "Decimal"),
        (datetime.datetime(2026, 3, 1), "a datetime"),
        (datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC), "a datetime"),
        (datetime.time(1), "time"),
        (b"a", "bytes"),
        (bytearray(b"a"), "bytearray"),
        (["a"], "list"),
        (("a",), "tuple"),
        ({"a": 1}, "dict"),
        ({1}, "set"),
        (object(), "object"),
        (int, "type"),
        (Plain.NOTHING, "the value of it is None"),
        (Plain.YES, "the value of it is a bool"),
        (Plain.HALF, "the value of it is a float"),
        (Plain.PAIR, "the value of it is of type tuple"),
        (10**5000, "too many digits"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value,
)
def test_other_values_are_refused_with_a_remedy(value: Any, why: str) -> None:
    with pytest.raises(holdfast.InvalidName, match=why) as caught:
        text_of(value, "it")
    assert "callable key" in str(caught.value) or "empty" in why or "digits" in why
    assert "0x" not in str(caught.value)


def test_only_text_is_escaped_so_an_id_gives_the_same_name_as_text_and_object() -> None:
    assert escaped(str(ID), "it") == escaped(ID, "it") == str(ID)
    assert escaped("7", "it") == escaped(7, "it")
    assert escaped(Text.A, "it") == "a%3Ab"
    assert escaped("2026-03-01", "it") == escaped(datetime.date(2026, 3, 1), "it")


@pytest.mark.parametrize("value", [None, "", True, 1.5, datetime.datetime(2026, 3, 1), b"x", [], ...], ids=repr)
def test_call_with_a_refused_value_takes_no_lock_and_does_not_run(client: holdfast.Client, value: Any) -> None:
    @client.locked("{value}", prefix="P")
    def work(value: Any) -> None:
        raise AssertionError("the body ran")

    with pytest.raises(holdfast.InvalidName, match=r"\{value\} in the key of .*work\(\)"):
        work(value)
    with pytest.raises(holdfast.InvalidName):
        work.lock_for(value)
    assert list(client.locks()) == []


def test_value_that_makes_the_name_too_long_is_refused(client: holdfast.Client) -> None:
    @client.locked("{value}", prefix="P")
    def work(value: str) -> None: ...

    with pytest.raises(holdfast.InvalidName, match="512"):
        work("x" * 511)
    assert work.lock_for("x" * 510).name == "P:" + "x" * 510


class Hostile(str):
    """A subclass whose own methods must not be called."""

    __slots__ = ()

    def __len__(self) -> int:
        raise ZeroDivisionError

    def __bool__(self) -> bool:
        raise ZeroDivisionError

    def __format__(self, spec: str) -> str:
        raise ZeroDivisionError


def test_methods_of_a_value_subclass_are_not_called() -> None:
    assert escaped(Hostile("a:b"), "it") == "a%3Ab"
    with pytest.raises(holdfast.InvalidName, match="empty"):
        text_of(Hostile(""), "it")


@pytest.mark.parametrize("kind", [str, int, uuid.UUID, datetime.date, datetime.datetime, Plain, bool, float])
def test_mock_of_an_accepted_type_is_refused_with_a_remedy(kind: type) -> None:
    """``isinstance`` accepts a proxy or a mock, but the methods of the type itself do not."""
    with pytest.raises(holdfast.InvalidName, match="of type Mock: a key is made of"):
        text_of(unittest.mock.Mock(spec=kind), "it")
