"""The grammar of key templates. Pure.

::

    template = { text | "{{" | "}}" | "{" parameter { "." name | "[" key "]" } "}" }

Attribute and item access only: no calls, no ``!r``, no ``:spec``, no ``{}`` or ``{0}``. A name after a dot must not
begin with an underscore: ``{user.__class__.__init__.__globals__}`` would expose secrets. Two placeholders need text
between them: otherwise ``a`` + ``bc`` and ``ab`` + ``c`` would be the same lock.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from holdfast.errors import UsageError


@dataclass(frozen=True, slots=True)
class Attribute:
    """``.name``"""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


@dataclass(frozen=True, slots=True)
class Item:
    """``[key]``: the text of a key, or, on a sequence, the digits of an index."""

    key: str

    def __str__(self) -> str:
        return f"[{self.key}]"


Step = Attribute | Item


@dataclass(frozen=True, slots=True)
class Placeholder:
    """``{parameter.name[key]}``"""

    parameter: str
    path: tuple[Step, ...] = ()

    def __str__(self) -> str:
        return "{" + self.parameter + "".join(map(str, self.path)) + "}"


Part = str | Placeholder

_PIECE: Final = re.compile(r"(?P<brace>\{\{|\}\})|\{(?P<inside>[^{}]*)\}|(?P<text>[^{}]+)|(?P<stray>[{}])")
_STEP: Final = re.compile(r"\.(?P<name>[^.\[\]]*)|\[(?P<key>[^\[\]]*)\]|(?P<wrong>.)", re.DOTALL)
_PARAMETER: Final = re.compile(r"[^.\[\]]*")


def parse(template: str) -> tuple[Part, ...]:
    """The texts and placeholders of ``template``; UsageError if it does not follow the grammar."""
    parts: list[Part] = []
    for part in _pieces(template):
        last = parts[-1] if parts else None
        if isinstance(part, str) and isinstance(last, str):
            parts[-1] = last + part
        elif isinstance(part, Placeholder) and isinstance(last, Placeholder):
            raise UsageError(
                f"key template {template!r}: {last} and {part} need text between them, such as ':'; without it "
                "different arguments would make the same name"
            )
        else:
            parts.append(part)
    if not parts:
        raise UsageError("the key template is empty; leave the key out to lock by the function's own name")
    return tuple(parts)


def _pieces(template: str) -> Iterator[Part]:
    for found in _PIECE.finditer(template):
        if found["brace"]:
            yield found["brace"][0]
        elif found["text"]:
            yield found["text"]
        elif found["stray"]:
            raise UsageError(
                f"key template {template!r}: a single {found[0]!r}; write {found[0] * 2!r} for the character"
            )
        else:
            yield _placeholder(found["inside"], template)


def _placeholder(inside: str, template: str) -> Placeholder:
    where = f"key template {template!r}: {{{inside}}}"
    parameter = _PARAMETER.match(inside)
    assert parameter is not None  # it matches the empty text, too
    for sign, what in (("!", "a conversion such as !r"), (":", "a format such as :>8")):
        if sign in inside.partition("[")[0]:
            raise UsageError(f"{where} has {what}, which templates do not have; use a callable key")
    name = parameter[0]
    if not name or name.isdigit():
        raise UsageError(f"{where} does not name a parameter of the function; write {{parameter}}")
    if not name.isidentifier():
        raise UsageError(f"{where}: {name!r} is not the name of a parameter")
    return Placeholder(name, tuple(_steps(inside[parameter.end() :], where)))


def _steps(path: str, where: str) -> Iterator[Step]:
    for found in _STEP.finditer(path):
        if found["wrong"]:
            raise UsageError(f"{where}: unexpected {found[0]!r}; after a parameter come .name and [key]")
        if (name := found["name"]) is not None:
            if not name.isidentifier():
                raise UsageError(f"{where}: {name!r} is not the name of an attribute; calls need a callable key")
            if name.startswith("_"):
                raise UsageError(f"{where}: {name!r} is private; names in a template do not begin with '_'")
            yield Attribute(name)
        else:
            yield Item(_item_key(found["key"], where))


def _item_key(key: str, where: str) -> str:
    if not key:
        raise UsageError(f"{where}: [] names no key")
    if key[0] in "'\"":
        raise UsageError(f"{where}: write the key without quotes: [{key.strip(key[0])}]")
    return key
