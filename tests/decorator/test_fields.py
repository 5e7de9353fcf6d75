"""Paths in key templates are checked against annotations when decorating; only certain errors are refused."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, NewType, Optional, TypedDict

import pydantic
import pytest

import holdfast


@dataclass
class Address:
    city: str
    zip_code: str = ""


@dataclass(frozen=True)
class User:
    user_id: int
    address: Address | None = None
    also: Unresolvable = None  # type: ignore[name-defined]  # noqa: F821
    derived: str = field(init=False, default="")

    @property
    def label(self) -> str:
        return str(self.user_id)

    def compute(self) -> int:
        return 1


class Order(TypedDict):
    order_id: int
    buyer: User


class Point(NamedTuple):
    x_position: int


class Model(pydantic.BaseModel):
    account_id: int
    owner: User | None = None


class OpenModel(pydantic.BaseModel, extra="allow"):
    account_id: int


class Plain:
    plain_id: int

    def __init__(self) -> None:
        self.not_annotated = 1


class Dynamic:
    plain_id: int

    def __init__(self, **more: int) -> None:
        self.__dict__.update(more)


class Answering:
    plain_id: int

    def __getattr__(self, name: str) -> int:
        return 1


class Meta(type):
    pass


class Failing:
    plain_id: int

    class _Descriptor:
        def __get__(self, instance: object, owner: type) -> int:
            raise ZeroDivisionError

    broken = _Descriptor()


class Mapped(metaclass=Meta):
    plain_id: int


class Base(ABC):
    base_id: int


class Unannotated:
    pass


UserAlias = NewType("UserAlias", User)


def decorate(client: holdfast.Client, path: str, annotation: Any) -> None:
    def function(value: Any) -> None: ...

    function.__annotations__["value"] = annotation
    client.locked("{value" + path + "}")(function)


REFUSED: list[tuple[str, Any, str]] = [
    (".userid", User, "User has no field 'userid'; did you mean 'user_id'"),
    (".userid", "User", "did you mean 'user_id'"),
    (".userid", Optional[User], "did you mean 'user_id'"),  # noqa: UP045
    (".userid", User | Address, "did you mean"),
    (".userid", Annotated[User, "x"], "did you mean 'user_id'"),
    (".userid", UserAlias, "did you mean 'user_id'"),
    (".address.ctiy", User, "Address has no field 'ctiy'; did you mean 'city'"),
    (".lable", User, "did you mean 'label'"),
    (".compute", User, "is a method"),
    ("[user_id]", User, "write .user_id"),
    ("[orderid]", Order, "Order has no key 'orderid'; did you mean 'order_id'"),
    (".order_id", Order, r"is a TypedDict; write \[order_id\]"),
    ("[buyer].userid", Order, "did you mean 'user_id'"),
    (".xposition", Point, "did you mean 'x_position'"),
    (".accountid", Model, "did you mean 'account_id'"),
    (".owner.userid", Model, "did you mean 'user_id'"),
    (".plainid", Plain, "did you mean 'plain_id'"),
    (".baseid", Base, "did you mean 'base_id'"),
    ("[a].userid", dict[str, User], "did you mean 'user_id'"),
    ("[0].userid", list[User], "did you mean 'user_id'"),
    ("[0].userid", "list[User]", "did you mean 'user_id'"),
]


@pytest.mark.parametrize("path, annotation, why", REFUSED, ids=lambda value: str(value))
def test_field_that_cannot_exist_is_refused_with_a_suggestion(
    client: holdfast.Client, path: str, annotation: Any, why: str
) -> None:
    with pytest.raises(holdfast.UsageError, match=why):
        decorate(client, path, annotation)


@pytest.mark.parametrize(
    "path, annotation",
    [
        (".user_id", User),
        (".derived", User),
        (".label", User),
        (".address.city", User),
        (".also.anything", User),
        (".user_id", User | Address),
        ("[order_id]", Order),
        ("[buyer].user_id", Order),
        (".x_position", Point),
        ("[0]", Point),
        (".account_id", Model),
        (".anything", OpenModel),
        (".not_annotated", Plain),
        (".anything", Dynamic),
        (".anything", Answering),
        (".anything", Mapped),
        (".anything", Unannotated),
        (".anything", Failing),
        (".anything", User | Unannotated),
        (".anything", Any),
        (".anything", "Undefined"),
        (".anything", "1/0"),
        (".anything", "not an annotation"),
        (".anything", 5),
        (".hex", "uuid.UUID"),
        ("[a]", dict),
        ("[a][b]", dict[str, Any]),
    ],
    ids=str,
)
def test_field_that_may_exist_is_accepted(client: holdfast.Client, path: str, annotation: Any) -> None:
    decorate(client, path, annotation)


def test_string_annotations_are_checked(client: holdfast.Client) -> None:
    with pytest.raises(holdfast.UsageError, match="did you mean 'user_id'"):

        @client.locked("{user.userid}")
        def function(user: User) -> None: ...


def test_annotation_from_a_local_scope_is_not_checked(client: holdfast.Client) -> None:
    @dataclass
    class Local:
        field: int

    @client.locked("{value.feld}")
    def function(value: Local) -> None: ...

    with pytest.raises(holdfast.InvalidName, match=r"has no \.feld"):
        function(Local(1))
