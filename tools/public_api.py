"""The public API as text: every public name with its signature, one line each, sorted.

``make api`` writes it from the installed package to docs/reference/public-api.txt. A test compares both, so a change of
the public API is a change of that file and is seen in review. Not in it: the cases of the conformance suite, private
names, and what redis-py's clients bring along.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Final, ForwardRef, get_overloads, is_typeddict

#: Modules that users import, the shortest path to a name first.
MODULES: Final = (
    "holdfast",
    "holdfast.aio",
    "holdfast.observer",
    "holdfast.fencing",
    "holdfast.fencing.http",
    "holdfast.fencing.objects",
    "holdfast.fencing.redis",
    "holdfast.fencing.sql",
    "holdfast.compat.redis_py",
    "holdfast.compat.redis_py.asyncio",
    "holdfast.decorator",
    "holdfast.testing.conformance",
    "holdfast.testing.proxy",
)
#: Types that users do not import, but get from what they call.
RETURNED: Final = ("holdfast.aio.AsyncLoss", "holdfast.lease.Loss", "holdfast.testing.faults.Occasion",
                   "holdfast.testing.faults.Rule")  # fmt: skip
#: The TypedDict with the options of all engines.
ALL_OPTIONS: Final = "holdfast.ConnectOptions"
#: Special methods that users call by a statement or an operator.
SPECIAL: Final = frozenset({"__aenter__", "__aexit__", "__bool__", "__call__", "__enter__", "__exit__"})


def lines() -> list[str]:
    """The lines of the file."""
    described: dict[int, str] = {}
    found: set[str] = set()
    for path, value in _names():
        if inspect.ismodule(value):
            found.add(f"{path} (module)")
        elif inspect.isroutine(value) or inspect.isclass(value):
            first = described.setdefault(id(value), path)
            found.update(_described(path, value) if first == path else [f"{path} = {first}"])
        else:
            found.add(f"{path}: str" if path.endswith("__version__") else f"{path} = {_literal(value) or _type(value)}")
    return sorted(found, key=lambda line: line.removeprefix("async "))


def _names() -> Iterator[tuple[str, Any]]:
    for path in MODULES:
        module = importlib.import_module(path)
        for name in getattr(module, "__all__", None) or _defined_in(module):
            yield f"{path}.{name}", getattr(module, name)
    for path in RETURNED:
        module_name, _, name = path.rpartition(".")
        yield path, getattr(importlib.import_module(module_name), name)


def _defined_in(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and hasattr(value, "__qualname__") and value.__module__ == module.__name__
    ]


def _described(path: str, value: Any) -> Iterator[str]:
    if inspect.isroutine(value):
        yield from _calls(path, value)
    elif is_typeddict(value):
        yield f"{path}: {', '.join(sorted(value.__annotations__))}"
        if path == ALL_OPTIONS:  # the types of the others are the same
            yield from (f"{path}[{key!r}]: {_type(kind)}" for key, kind in value.__annotations__.items())
    else:
        yield from _class(path, value)


def _class(path: str, kind: type) -> Iterator[str]:
    bases = [base.__name__ for base in kind.__bases__ if base is not object]
    yield f"{path} ({', '.join(bases)})" if bases else path
    constructor = next((vars(base)["__init__"] for base in kind.__mro__ if "__init__" in vars(base)), None)
    if _is_ours(getattr(constructor, "__module__", None)) and not getattr(kind, "_is_protocol", False):
        yield from _calls(f"{path}.__init__", constructor)
    fields = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    for name in sorted({*dir(kind), *fields}):
        owner = next((base for base in kind.__mro__ if name in vars(base)), kind)
        if name.startswith("test_") or (name.startswith("_") and name not in SPECIAL) or not _is_ours(owner.__module__):
            continue
        annotations = [vars(base).get("__annotations__") or {} for base in kind.__mro__]
        written = next((known[name] for known in annotations if name in known), None)
        yield from _member(f"{path}.{name}", inspect.getattr_static(kind, name, None), written)


def _member(path: str, member: Any, written: Any) -> Iterator[str]:
    member = getattr(member, "__func__", member)
    if written is not None:
        yield f"{path}: {_type(written)}"
    elif isinstance(member, property):
        yield f"{path}: {_type(inspect.signature(member.fget).return_annotation)}"  # type: ignore[arg-type]
    elif inspect.isfunction(member):
        yield from _calls(path, member)
    else:
        yield f"{path} (attribute)"


def _calls(path: str, function: Any) -> Iterator[str]:
    """One line for each overload, with the annotations of the source: the same for every version of Python."""
    kind = "async " if inspect.iscoroutinefunction(function) else ""
    for each in get_overloads(function) or [function]:
        signature = inspect.signature(each)
        parameters = [
            parameter.replace(
                annotation=_shown(parameter.annotation, _type),
                default=_shown(parameter.default, _default),
            )
            for parameter in signature.parameters.values()
        ]
        returned = _shown(signature.return_annotation, _type)
        yield f"{kind}{path}{signature.replace(parameters=parameters, return_annotation=returned)}"


def _default(value: Any) -> str:
    return "…" if isinstance(value, frozenset) else _literal(value) or "…"


def _shown(value: Any, show: Callable[[Any], str]) -> Any:
    """An object whose repr is ``show(value)``; an absent value stays absent."""
    if value is inspect.Parameter.empty:
        return value
    return type("Shown", (), {"__repr__": lambda self: show(value)})()


def _type(annotation: Any) -> str:
    if isinstance(annotation, ForwardRef):
        return annotation.__forward_arg__
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _literal(value: Any) -> str | None:
    """A value that is the same everywhere; None for others, such as ``os.environ``, which must not be shown."""
    if value is None or value == () or isinstance(value, (bool, int, float, str, bytes)):
        return repr(value)
    return f"{{{', '.join(sorted(map(repr, value)))}}}" if isinstance(value, frozenset) and len(value) > 0 else None


def _is_ours(module: str | None) -> bool:
    return (module or "").partition(".")[0] == "holdfast"


if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in lines()))
