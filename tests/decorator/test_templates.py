"""The grammar of key templates, and errors raised when decorating."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast.decorator import template
from holdfast.decorator.template import Attribute, Item, Placeholder
from tests.decorator.names import name_of


def function(order: Any, user: Any = "anna", *rest: Any, limit: Any = 7, **more: Any) -> None:
    """Decorated by the tests."""


@pytest.mark.parametrize(
    "text, parts",
    [
        ("nightly", ("nightly",)),
        ("{order}", (Placeholder("order"),)),
        ("a:{order.id}", ("a:", Placeholder("order", (Attribute("id"),)))),
        ("{order[id]}", (Placeholder("order", (Item("id"),)),)),
        ("{order.lines[0].sku}", (Placeholder("order", (Attribute("lines"), Item("0"), Attribute("sku"))),)),
        ("{order[_id]}", (Placeholder("order", (Item("_id"),)),)),
        ("{order[a.b:c!d]}", (Placeholder("order", (Item("a.b:c!d"),)),)),
        ("{{{order}}}", ("{", Placeholder("order"), "}")),
        ("{{order}}", ("{order}",)),
        ("{order}{{{user}", (Placeholder("order"), "{", Placeholder("user"))),
    ],
)
def test_template_is_parsed_into_text_and_placeholders(text: str, parts: tuple[template.Part, ...]) -> None:
    assert template.parse(text) == parts


@pytest.mark.parametrize(
    "text, why",
    [
        ("", "empty"),
        ("{}", "does not name a parameter"),
        ("{0}", "does not name a parameter"),
        ("{ order }", "is not the name of a parameter"),
        ("{order!r}", "conversion"),
        ("{order:>8}", "format"),
        ("{order.id:d}", "format"),
        ("{order", "a single '{'"),
        ("order}", "a single '}'"),
        ("{order{user}}", "a single '{'"),
        ("{order}{user}", "need text between them"),
        ("{order.}", "is not the name of an attribute"),
        ("{order.id()}", "calls need a callable key"),
        ("{order._secret}", "private"),
        ("{order.__class__}", "private"),
        ("{order.a.__globals__}", "private"),
        ("{order[]}", "names no key"),
        ("{order['id']}", r"without quotes: \[id\]"),
        ("{order[a]b}", "unexpected 'b'"),
        ("{order[a}", r"unexpected '\['"),
        ("{ordr}", "did you mean 'order'"),
        ("{Order}", "did you mean 'order'"),
        ("{zzz}", "known: 'limit', 'order', 'user'"),
        ("{rest}", "any number of arguments"),
        ("{more}", "any number of arguments"),
        ("{more[x]}", "any number of arguments"),
        ("#order.id", r"#order is not replaced; write \{order\}"),
        ("a:#user", r"#user is not replaced; write \{user\}"),
    ],
)
def test_invalid_template_is_refused_when_decorating(client: holdfast.Client, text: str, why: str) -> None:
    with pytest.raises(holdfast.UsageError, match=why):
        client.locked(text)(function)


@pytest.mark.parametrize("text", ["#7", "#", "queue#orders", "#{order}"])
def test_number_sign_is_literal_unless_a_parameter_follows(client: holdfast.Client, text: str) -> None:
    assert name_of(client, text, function, 5) == text.replace("{order}", "5")


@pytest.mark.parametrize("key", [[], ["{order}", None], ["{order}", 7], ["{order}", "{nothing}"]], ids=str)
def test_list_of_templates_that_cannot_work_is_refused_when_decorating(client: holdfast.Client, key: Any) -> None:
    with pytest.raises(holdfast.UsageError):
        client.locked(key)(function)


@pytest.mark.parametrize("key", [7, b"a", ...], ids=repr)
def test_key_of_another_type_is_refused_when_decorating(client: holdfast.Client, key: Any) -> None:
    with pytest.raises(holdfast.UsageError, match="a key is a template"):
        client.locked(key)(function)


def test_arguments_are_found_by_position_name_and_default(client: holdfast.Client) -> None:
    key = "{order}:{user}:{limit}"
    assert name_of(client, key, function, 1, "bo", 3, limit=2) == "1:bo:2"
    assert name_of(client, key, function, user="bo", order=1) == "1:bo:7"
    assert name_of(client, key, function, 1) == "1:anna:7"


def test_positional_only_parameter_ignores_a_keyword_of_the_same_name(client: holdfast.Client) -> None:
    def function(key: int, /, **more: int) -> None: ...

    assert name_of(client, "{key}", function, 1, key=2) == "1"
    with pytest.raises(TypeError, match="positional only"):
        name_of(client, "{key}", function, key=2)


def test_call_without_the_argument_raises_the_usual_type_error(client: holdfast.Client) -> None:
    locked: Any = client.locked("{order}")(function)
    with pytest.raises(TypeError, match="order"):
        locked()
    assert list(client.locks()) == []


def test_items_are_mapping_keys_and_sequence_indexes(client: holdfast.Client) -> None:
    assert name_of(client, "{order[id]}", function, {"id": 5}) == "5"
    assert name_of(client, "{order[0]}", function, {"0": "zero"}) == "zero"
    assert name_of(client, "{order[1]}", function, ["a", "b"]) == "b"
    assert name_of(client, "{order[1]}", function, ("a", "b")) == "b"
    assert name_of(client, "{order.lines[0][sku]}", function, SimpleNamespace(lines=[{"sku": "x"}])) == "x"


@pytest.mark.parametrize(
    "key, order, why, cause",
    [
        ("{order.id}", SimpleNamespace(), r"{order.id} in the key of function\(\).*has no .id", AttributeError),
        ("{order.id}", None, "NoneType has no .id", AttributeError),
        ("{order.id}", {"id": 1}, r"write \[id\] for a key", AttributeError),
        ("{order[id]}", {}, r"dict has no \[id\]", KeyError),
        ("{order[id]}", SimpleNamespace(id=1), "write .id for an attribute", TypeError),
        ("{order[2]}", [1], r"list has no \[2\]", IndexError),
        ("{order[id]}", [1], r"list has no \[id\]", TypeError),
        ("{order[0]}", "text", r"str has no \[0\]", TypeError),
    ],
)
def test_value_missing_at_a_call_is_named(
    client: holdfast.Client, key: str, order: Any, why: str, cause: type[Exception]
) -> None:
    with pytest.raises(holdfast.InvalidName, match=why) as caught:
        name_of(client, key, function, order)
    assert isinstance(caught.value.__cause__, cause)
    assert list(client.locks()) == []


def test_error_of_a_property_propagates(client: holdfast.Client) -> None:
    class Order:
        @property
        def id(self) -> int:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        name_of(client, "{order.id}", function, Order())


def test_single_placeholder_is_verbatim_and_several_are_escaped(client: holdfast.Client) -> None:
    assert name_of(client, "{order}", function, "a:b%c") == "a:b%c"
    assert name_of(client, "<{order}>", function, "a:b%c") == "<a:b%c>"
    assert name_of(client, "{order}:{user}", function, "a:b", "100%") == "a%3Ab:100%25"


texts = st.text(st.sampled_from("ab:%3A25"), min_size=1, max_size=8)


@given(first=st.tuples(texts, texts), second=st.tuples(texts, texts))
def test_no_two_pairs_of_values_make_the_same_name(first: tuple[str, str], second: tuple[str, str]) -> None:
    with holdfast.connect("memory:") as client:
        same = name_of(client, "{order}:{user}", function, *first) == name_of(
            client, "{order}:{user}", function, *second
        )
    assert same == (first == second)


def test_prefix_precedes_the_key_with_a_colon(client: holdfast.Client) -> None:
    @client.locked("{order.id}", prefix="ACCOUNT:USER")
    def ship(order: Any) -> None: ...

    @client.locked(prefix="JOBS")
    def nightly() -> None: ...

    assert ship.lock_for(SimpleNamespace(id=5)).name == "ACCOUNT:USER:5"
    assert nightly.lock_for().name == f"JOBS:{__name__}.{nightly.__qualname__}"


@pytest.mark.parametrize("prefix", ["x" * 513, 5], ids=["long", "int"])
def test_invalid_prefix_is_refused(client: holdfast.Client, prefix: Any) -> None:
    with pytest.raises(holdfast.InvalidName, match="prefix"):
        client.locked("a", prefix=prefix)


def test_callable_key_gets_the_arguments_of_the_call(client: holdfast.Client) -> None:
    def key(order: int, user: str = "x", *rest: int, limit: int = 1, **more: int) -> str:
        return f"{order}/{user}/{rest}/{limit}/{more}"

    assert name_of(client, key, function, 1, "bo", 2, limit=3, extra=4) == "1/bo/(2,)/3/{'extra': 4}"
    assert name_of(client, lambda order: order, function, 12) == "12"


@pytest.mark.parametrize("made", [None, "", True, 1.5, ("a", "b"), ...], ids=repr)
def test_result_of_a_callable_key_is_validated(client: holdfast.Client, made: Any) -> None:
    with pytest.raises(holdfast.InvalidName, match=r"the key that .* made"):
        name_of(client, lambda *args: made, function, 1)


def test_coroutine_function_as_key_is_refused(client: holdfast.Client) -> None:
    async def key(order: int) -> int:
        return order

    with pytest.raises(holdfast.UsageError, match="plain function"):
        client.locked(key=key)(function)


@pytest.mark.parametrize(
    "option, instead",
    [("blocking", "on_busy='raise' or 'skip' tries once"), ("blocking_timeout", "timeout="), ("sleep", "leave it out")],
)
def test_options_of_other_libraries_are_refused_with_the_equivalent(
    client: holdfast.Client, option: str, instead: str
) -> None:
    with pytest.raises(holdfast.UsageError, match=rf"locked\(\) has no {option}=: .*{instead}"):
        client.locked("{order}", **{option: 1})(function)  # type: ignore[call-overload]


def test_missing_argument_error_names_the_function(client: holdfast.Client) -> None:
    with pytest.raises(TypeError, match=r"function\(\) missing a required argument: 'order'"):
        client.locked("{order}")(function)()  # type: ignore[call-arg]
