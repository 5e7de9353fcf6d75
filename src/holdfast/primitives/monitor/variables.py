"""The variables of a monitor, and whether values fit their annotations. Pure."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Literal, Union

from holdfast.errors import InvalidState, UsageError

#: Raises InvalidState if a value, found under a path, does not fit.
Check = Callable[[Any, str], None]

_PLAIN: Final[Mapping[Any, str]] = {int: "int", float: "float", str: "str", bool: "bool", type(None): "None"}


def shared_names(cls: type) -> list[str]:
    """The variables that a class itself declares: annotated names, but for ClassVar and those with an underscore."""
    declared = vars(cls).get("__annotations__", {})
    return [name for name, hint in declared.items() if not name.startswith("_") and not _is_class_variable(hint)]


def _is_class_variable(hint: Any) -> bool:
    if isinstance(hint, str):  # from __future__ import annotations
        return hint.startswith(("ClassVar", "typing.ClassVar"))
    return hint is ClassVar or typing.get_origin(hint) is ClassVar


def checks_of(cls: type, names: typing.Iterable[str]) -> dict[str, Check]:
    """The check of each variable. UsageError for an annotation that no JSON value can fit."""
    try:
        hints = typing.get_type_hints(cls)
    except NameError as error:
        raise UsageError(f"an annotation of {cls.__name__} cannot be evaluated: {error}") from error
    return {name: _check_of(hints[name], f"{cls.__name__}.{name}") for name in names}


def _check_of(hint: Any, where: str) -> Check:
    if hint is Any:
        return _any
    if hint in (list, dict):
        return _check_of(list[Any] if hint is list else dict[str, Any], where)
    if hint in _PLAIN or hint is None:
        return _plain(type(None) if hint is None else hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return _union([_check_of(each, where) for each in arguments], " or ".join(map(name_of, arguments)))
    if origin is Literal:
        return _literal(arguments)
    if origin is list:
        return _list(_check_of(arguments[0], where))
    if origin is dict and arguments[0] is str:
        return _dict(_check_of(arguments[1], where))
    raise UsageError(
        f"{where}: the state of a monitor is JSON, and cannot have a {name_of(hint)}: use int, float, str, bool, None, "
        "list[…], dict[str, …], Literal, and unions of these"
    )


def name_of(hint: Any) -> str:
    """As an annotation would be written."""
    if typing.get_origin(hint):
        return str(hint)
    return _PLAIN.get(hint, str(getattr(hint, "__name__", hint)))


def _wrong(path: str, expected: str, value: Any) -> InvalidState:
    if isinstance(value, float) and not math.isfinite(value):
        return InvalidState(path, expected, str(value))
    return InvalidState(path, expected, type(value).__name__)


def _plain(wanted: type) -> Check:
    kinds: tuple[type, ...] = (int, float) if wanted is float else (wanted,)

    def check(value: Any, path: str) -> None:
        if type(value) not in kinds or (isinstance(value, float) and not math.isfinite(value)):
            raise _wrong(path, _PLAIN[wanted], value)

    return check


def _union(checks: list[Check], expected: str) -> Check:
    def check(value: Any, path: str) -> None:
        for each in checks:
            try:
                return each(value, path)
            except InvalidState as error:
                if error.path != path:
                    raise  # of the right kind, but something inside it is not
        raise _wrong(path, expected, value)

    return check


def _literal(allowed: tuple[Any, ...]) -> Check:
    def check(value: Any, path: str) -> None:
        if not any(type(value) is type(each) and value == each for each in allowed):
            raise InvalidState(path, " or ".join(map(repr, allowed)), repr(value))

    return check


def _list(item: Check) -> Check:
    def check(value: Any, path: str) -> None:
        if type(value) is not list:
            raise _wrong(path, "list", value)
        for place, each in enumerate(value):
            item(each, f"{path}[{place}]")

    return check


def _dict(item: Check) -> Check:
    def check(value: Any, path: str) -> None:
        if type(value) is not dict:
            raise _wrong(path, "dict", value)
        for key, each in value.items():
            if type(key) is not str:
                raise InvalidState(path, "keys of type str", f"a key of type {type(key).__name__}")
            item(each, f"{path}[{key!r}]")

    return check


_ANY: Final = "a JSON value (int, float, str, bool, None, list or dict)"


def _any(value: Any, path: str) -> None:
    if type(value) is list:
        _list(_any)(value, path)
    elif type(value) is dict:
        _dict(_any)(value, path)
    elif type(value) not in _PLAIN or (isinstance(value, float) and not math.isfinite(value)):
        raise _wrong(path, _ANY, value)
