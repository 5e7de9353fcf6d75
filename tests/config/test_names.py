"""Lock names: accepted and refused names, and round trips through namespaces."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast._config import names
from holdfast.errors import InvalidName

# st.text() includes surrogates by default; 128 four-byte characters are exactly the limit.
valid_names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=128)


@given(valid_names)
def test_text_of_up_to_512_bytes_is_a_valid_name(name: str) -> None:
    assert names.validate(name) is name


@given(st.text(min_size=1, max_size=600))
def test_name_limit_is_in_bytes_not_characters(name: str) -> None:
    size = len(name.encode(errors="surrogatepass"))
    lone_surrogate = any("\ud800" <= character <= "\udfff" for character in name)
    if size <= 512 and not lone_surrogate:
        assert names.validate(name) == name
    else:
        with pytest.raises(InvalidName):
            names.validate(name)


@pytest.mark.parametrize(
    "bad, message",
    [
        ("", "empty"),
        ("a" * 513, "513"),
        ("ä" * 257, "514"),
        ("a\ud800", "surrogate"),
        (b"bytes", r"not bytes; use its \.decode\(\)"),
        (bytearray(b"bytes"), r"use its \.decode\(\)"),
        (None, "NoneType"),
        (7, r"not int; use str\(\)"),
    ],
)
def test_invalid_name_is_refused_with_a_remedy(bad: object, message: str) -> None:
    with pytest.raises(InvalidName, match=message) as caught:
        names.validate(bad)
    assert isinstance(caught.value, ValueError)
    # Every error can be logged and pickled, also the error about a name that cannot be encoded.
    str(caught.value).encode()
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize("bad", [b"x", bytearray(b"x"), memoryview(b"x"), None, True, object()])
def test_str_is_not_recommended_for_values_whose_text_differs(bad: object) -> None:
    """``str(b"x")`` is "b'x'", ``str(None)`` is "None", and ``str`` of an object contains its address."""
    with pytest.raises(InvalidName) as caught:
        names.validate(bad)
    assert "str()" not in str(caught.value)


def test_name_of_512_bytes_is_accepted() -> None:
    assert names.validate("ä" * 256) == "ä" * 256


@given(st.just("") | valid_names, valid_names)
def test_unqualify_reverses_qualify(namespace: str, name: str) -> None:
    assert names.unqualify(namespace, names.qualify(namespace, name)) == name


@given(valid_names, valid_names)
def test_name_without_the_namespace_is_outside(namespace: str, name: str) -> None:
    inside = name.startswith(f"{namespace}:") and name != f"{namespace}:"
    assert (names.unqualify(namespace, name) is None) == (not inside)


def test_namespace_is_a_prefix_with_a_colon() -> None:
    assert names.qualify("shop", "order:42") == "shop:order:42"
    assert names.qualify("", "order:42") == "order:42"
    assert names.unqualify("shop", "shopping:1") is None
    assert names.unqualify("shop", "shop:") is None
