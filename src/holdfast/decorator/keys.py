"""From a call's arguments to the name of its lock.

A template is compiled when decorating, to positions and access paths. So a call looks up only the arguments that the
key needs, and does not bind all of them to the signature, which takes about 14 µs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from holdfast._config import names
from holdfast.decorator import template, values
from holdfast.decorator.fields import check_path
from holdfast.decorator.nearest import suggestion
from holdfast.errors import InvalidName, UsageError

#: Returns the lock name of a call with these arguments.
Namer = Callable[[tuple[Any, ...], Mapping[str, Any]], str]
#: The same for a function with several locks: their names.
SeveralNamer = Callable[[tuple[Any, ...], Mapping[str, Any]], tuple[str, ...]]

_MANY: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def compile_key(key: Any, prefix: str, function: Callable[..., Any]) -> Namer | SeveralNamer:
    """The Namer for ``key``: a template, a callable, or None for module.qualname; of several templates and callables,
    that of several locks. UsageError if it cannot work."""
    if isinstance(key, (list, tuple, set, frozenset)):
        return _several([_of_one(_one_of_several(each), prefix, function) for each in key])
    return _of_one(key, prefix, function)


def _several(namers: Sequence[Namer]) -> SeveralNamer:
    if not namers:
        raise UsageError("the list of keys is empty: give at least one template or callable")
    return lambda args, kwargs: tuple([name(args, kwargs) for name in namers])


def _one_of_several(key: Any) -> Any:
    if key is None:
        raise UsageError("a list of keys has None in it: give a template or a callable for each lock")
    return key


def _of_one(key: Any, prefix: str, function: Callable[..., Any]) -> Namer:
    before = f"{prefix}:" if prefix else ""
    if key is None:
        return _constant(before + default_key(function))
    if isinstance(key, str):
        return _from_template(key, before, function)
    if callable(key):
        return _from_callable(key, before, function)
    raise UsageError(f"a key is a template, a callable, or a list of these, not {type(key).__qualname__}")


def default_key(function: Callable[..., Any]) -> str:
    """``module.qualname``: one lock for all calls, and for a method, one lock for all objects."""
    try:
        return f"{function.__module__}.{function.__qualname__}"
    except AttributeError:
        raise UsageError(f"{function!r} has no name of its own to lock by: give a key") from None


def _constant(name: str) -> Namer:
    names.validate(name)
    return lambda args, kwargs: name


def _from_callable(key: Callable[..., Any], before: str, function: Callable[..., Any]) -> Namer:
    if inspect.iscoroutinefunction(key) or inspect.isasyncgenfunction(key) or inspect.isgeneratorfunction(key):
        raise UsageError("the key is a coroutine function or a generator: give a plain function that returns the key")
    what = f"the key that {getattr(key, '__qualname__', type(key).__qualname__)} made for {_called(function)}"
    return lambda args, kwargs: before + values.text_of(key(*args, **kwargs), what)


def _from_template(text: str, before: str, function: Callable[..., Any]) -> Namer:
    parts = template.parse(text)
    found = [part for part in parts if isinstance(part, template.Placeholder)]
    if not found:
        _refuse_expression(text, function)
        return _constant(before + "".join(str(part) for part in parts))
    reader = _Reader(text, function)
    convert = values.text_of if len(found) == 1 else values.escaped
    pieces = [part if isinstance(part, str) else reader.compile(part, convert) for part in parts]
    if len(found) == 1:
        (place,) = (number for number, piece in enumerate(pieces) if not isinstance(piece, str))
        first, after = "".join(map(str, pieces[:place])), "".join(map(str, pieces[place + 1 :]))
        return _around(before + first, pieces[place], after)

    def name(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        return before + "".join([piece if type(piece) is str else piece(args, kwargs) for piece in pieces])  # type: ignore[operator]

    return name


def _refuse_expression(text: str, function: Callable[..., Any]) -> None:
    """Refuse ``#user.id``, the syntax of Spring: taken as plain text, it would be one lock for all calls."""
    try:
        parameters = inspect.signature(function).parameters
    except (ValueError, TypeError):
        return  # no signature, so there is no parameter to compare with
    for name in re.findall(r"#(\w+)", text):
        if name in parameters:
            raise UsageError(f"key template {text!r} has no placeholder, and #{name} is not replaced; write {{{name}}}")


def _around(before: str, value: Any, after: str) -> Namer:
    return lambda args, kwargs: f"{before}{value(args, kwargs)}{after}"


class _Reader:
    """Compiles the placeholders of one template over one function."""

    def __init__(self, text: str, function: Callable[..., Any]) -> None:
        self._text = text
        self._function = function
        try:
            self._signature = inspect.signature(function)
        except (ValueError, TypeError) as error:
            raise UsageError(f"{_called(function)} has no signature to check a template against: {error}") from error

    def compile(self, placeholder: template.Placeholder, convert: Callable[[Any, str], str]) -> Namer:
        """The text of one placeholder for given arguments."""
        argument = self._argument(placeholder)
        what = f"{placeholder} in the key of {_called(self._function)}"
        if not placeholder.path:
            return lambda args, kwargs: convert(argument(args, kwargs), what)
        steps = [_accessor(step, what) for step in placeholder.path]

        def text(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
            value = argument(args, kwargs)
            for step in steps:
                value = step(value)
            return convert(value, what)

        return text

    def _argument(self, placeholder: template.Placeholder) -> Callable[[tuple[Any, ...], Mapping[str, Any]], Any]:
        parameters = self._signature.parameters
        name, where = placeholder.parameter, f"key template {self._text!r}: {placeholder}"
        parameter = parameters.get(name)
        if parameter is None:
            usable = [each.name for each in parameters.values() if each.kind not in _MANY]
            raise UsageError(
                f"{where}: {_called(self._function)} has no parameter {name!r}; {suggestion(name, usable)}"
            )
        if parameter.kind in _MANY:
            raise UsageError(f"{where}: {name!r} collects any number of arguments; name one, or use a callable key")
        check_path(self._function, parameter, placeholder.path, where)
        return self._lookup(parameter, list(parameters).index(name))

    def _lookup(self, parameter: inspect.Parameter, place: int) -> Callable[[tuple[Any, ...], Mapping[str, Any]], Any]:
        name, default, missing = parameter.name, parameter.default, inspect.Parameter.empty
        by_place = parameter.kind is not inspect.Parameter.KEYWORD_ONLY
        by_name = parameter.kind is not inspect.Parameter.POSITIONAL_ONLY

        def argument(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
            if by_place and place < len(args):
                return args[place]
            if by_name and name in kwargs:
                return kwargs[name]
            if default is missing:
                try:
                    self._signature.bind(*args, **kwargs)
                except TypeError as error:
                    raise TypeError(f"{_called(self._function)} {error}") from None
                raise TypeError(f"{_called(self._function)} missing a required argument: {name!r}")
            return default

        return argument


def _accessor(step: template.Step, what: str) -> Callable[[Any], Any]:
    read: Callable[[Any], Any]
    if isinstance(step, template.Attribute):
        wanted = step.name

        def read(value: Any) -> Any:
            return getattr(value, wanted)
    else:
        read = _item(step.key)

    def access(value: Any) -> Any:
        try:
            return read(value)
        except (AttributeError, LookupError, TypeError) as error:
            raise InvalidName(f"{what}: {_missing(value, step)}") from error

    return access


def _missing(value: Any, step: template.Step) -> str:
    found = f"this call's {type(value).__qualname__} has no {step}"
    if isinstance(step, template.Attribute) and isinstance(value, Mapping):
        return f"{found}; write [{step.name}] for a key"
    if isinstance(step, template.Item) and not hasattr(value, "__getitem__"):
        return f"{found}; write .{step.key} for an attribute"
    return found


def _item(key: str) -> Callable[[Any], Any]:
    index = int(key) if key.isascii() and key.isdigit() else None

    def read(value: Any) -> Any:
        if isinstance(value, (str, bytes, bytearray)):
            raise TypeError("a text has no items")
        if isinstance(value, Sequence) and index is not None:
            return value[index]
        return value[key]

    return read


def _called(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__qualname__', type(function).__qualname__)}()"
