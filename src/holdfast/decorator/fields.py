"""Checks a template's paths against the annotations of the function, when decorating.

Only paths that cannot exist are refused. A type is *closed* if its definition shows all attributes of its instances:
dataclasses, NamedTuples, pydantic models, TypedDicts (by item) and plain annotated classes without ``__getattr__`` or a
metaclass of their own. Other types, and annotations that cannot be resolved yet, are not checked.
"""

from __future__ import annotations

import inspect
import sys
import types
import typing
from abc import ABCMeta
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from holdfast.decorator.nearest import suggestion
from holdfast.decorator.template import Item, Step
from holdfast.errors import UsageError

#: Nothing is known about it.
_UNKNOWN: Final = Any
#: A class whose methods use one of these may have attributes of any name.
_SETTERS: Final = frozenset({"setattr", "__setattr__", "__dict__", "vars"})
#: Packages of base classes whose methods add no attributes.
_OTHERS: Final = frozenset({"abc", "builtins", "pydantic", "typing"})
#: File names of methods that dataclasses and attrs generate.
_GENERATED: Final = ("<string>", "<attrs")
#: Metaclasses that give instances no attributes of their own.
_PLAIN_METACLASSES: Final = (type, ABCMeta, type(typing.Protocol))


def check_path(function: Callable[..., Any], parameter: inspect.Parameter, path: tuple[Step, ...], where: str) -> None:
    """UsageError with the nearest name if ``path`` cannot exist in the annotated type of ``parameter``."""
    if parameter.annotation is inspect.Parameter.empty:
        return
    owner = inspect.unwrap(function)
    kinds = _members(_resolved(parameter.annotation, getattr(owner, "__globals__", {})))
    for step in path:
        found = [_after(kind, step) for kind in kinds]
        if found and all(isinstance(each, str) for each in found):
            raise UsageError(f"{where}: {found[0]}")
        kinds = [member for each in found if not isinstance(each, str) for member in _members(each)]


def _resolved(annotation: Any, namespace: Mapping[str, Any]) -> Any:
    """The annotation as a type; _UNKNOWN if it is a string that cannot be evaluated yet."""
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, dict(namespace))["it"]
    except Exception:  # an annotation may contain any code, and need not work at run time
        return _UNKNOWN


def _members(kind: Any) -> list[Any]:
    """The possible types of a value: the members of a union without None; the type behind a NewType or Annotated."""
    while hasattr(kind, "__supertype__"):
        kind = kind.__supertype__
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        return _members(typing.get_args(kind)[0])
    if origin in (typing.Union, types.UnionType):
        return [each for kind in typing.get_args(kind) if kind is not types.NoneType for each in _members(kind)]
    return [kind]


def _after(kind: Any, step: Step) -> Any:
    """The type after ``step`` from ``kind``, or a str that says why there is none."""
    try:
        return _item(kind, step.key) if isinstance(step, Item) else _attribute(kind, step.name)
    except Exception:  # introspection may run any code of the class; the check must not break working code
        return _UNKNOWN


def _item(kind: Any, key: str) -> Any:
    if typing.is_typeddict(kind):
        fields = _hints(kind)
        return fields.get(key) or f"{kind.__qualname__} has no key {key!r}; {suggestion(key, fields)}"
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if inspect.isclass(origin) and issubclass(origin, Mapping) and len(arguments) == 2:
        return arguments[1]
    if inspect.isclass(origin) and issubclass(origin, Sequence) and origin is not tuple and len(arguments) == 1:
        return arguments[0]
    if _is_closed(kind) and not hasattr(kind, "__getitem__"):
        return f"{kind.__qualname__} has no items; write .{key}"
    return _UNKNOWN


def _attribute(kind: Any, name: str) -> Any:
    if typing.is_typeddict(kind):
        return _UNKNOWN if hasattr(dict, name) else f"{kind.__qualname__} is a TypedDict; write [{name}]"
    if not _is_closed(kind):
        return _UNKNOWN
    hints = _hints(kind)
    if name in hints:
        return hints[name]
    try:
        static = inspect.getattr_static(kind, name)
    except AttributeError:
        mentioned = _mentioned(kind)
        if name in mentioned or mentioned & _SETTERS:
            return _UNKNOWN  # its methods may assign it
        known = {*hints, *(each for each in dir(kind) if not callable(getattr(kind, each, None)))}
        public = [each for each in known if not each.startswith(("_", "model_"))]
        return f"{kind.__qualname__} has no field {name!r}; {suggestion(name, public)}"
    if isinstance(static, types.FunctionType):
        return f"{kind.__qualname__}.{name} is a method, and templates do not call; use a callable key"
    return _UNKNOWN


def _is_closed(kind: Any) -> bool:
    """Whether all attributes of instances of ``kind`` can be seen in its definition."""
    if not inspect.isclass(kind):
        return False
    if _is_pydantic(kind):
        config = getattr(kind, "model_config", {})
        return isinstance(config, Mapping) and config.get("extra") != "allow" and _hooks(kind) <= {"pydantic.main"}
    annotated = any(inspect.get_annotations(each) for each in kind.__mro__)
    return annotated and type(kind) in _PLAIN_METACLASSES and not _hooks(kind)


def _hooks(kind: type) -> set[str]:
    """The modules of bases with ``__getattr__`` or ``__getattribute__``, which may provide undefined attributes."""
    bases = [each for each in kind.__mro__ if each.__module__ != "builtins"]
    return {each.__module__ for each in bases if {"__getattr__", "__getattribute__"} & vars(each).keys()}


def _is_pydantic(kind: type) -> bool:
    pydantic = sys.modules.get("pydantic")  # if it is not imported, there is no model
    model = getattr(pydantic, "BaseModel", None)
    return model is not None and issubclass(kind, model)


def _hints(kind: type) -> dict[str, Any]:
    """The annotated fields of a class with their types; _UNKNOWN for those that cannot be resolved."""
    found: dict[str, Any] = {}
    for each in reversed(kind.__mro__):
        namespace = vars(sys.modules.get(each.__module__, types))
        annotations = inspect.get_annotations(each)
        found |= {name: _resolved(annotation, namespace) for name, annotation in annotations.items()}
    return found


def _mentioned(kind: type) -> set[str]:
    """Names in the methods of a class: an attribute that is assigned but not annotated is among them."""
    return {name for code in _codes(kind) for name in code.co_names}


def _codes(kind: type) -> Iterable[types.CodeType]:
    for each in kind.__mro__:
        if each.__module__.partition(".")[0] in _OTHERS:
            continue
        for member in vars(each).values():
            function = inspect.unwrap(member) if callable(member) else getattr(member, "__func__", None)
            code = getattr(function, "__code__", None)
            if isinstance(code, types.CodeType) and not code.co_filename.startswith(_GENERATED):
                yield code
