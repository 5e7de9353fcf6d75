"""The header ``Holdfast-Fence``: an Item of RFC 9651, of which exactly this form is read and written::

    Holdfast-Fence: "orders";token="1790000000000000";owner="6f1c…:42"

The lease of a read lock adds ``;mode="read"``: it passes if no newer token was seen, and is not stored.

The token is a String: an Integer of RFC 9651 ends at 15 digits, and tokens have 16 or more. A resource or owner with
characters outside of printable ASCII is a Display String, ``%"caf%c3%a9"``.

Stricter than the RFC where two parsers could disagree: unknown and repeated parameters are refused, and so is a second
header line.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from holdfast._config import names
from holdfast.fencing.rule import Bearer, Lease, bearer

#: The header's name.
NAME: Final = "Holdfast-Fence"

#: Longer than any valid header: two texts of at most 512 bytes, each byte written with three characters, and a token.
_LONGEST: Final = 4096
_PRINTABLE: Final = re.compile(r"[\x20-\x7e]*")
_STRING: Final = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_DISPLAY: Final = re.compile(r'%"((?:[\x20\x21\x23\x24\x26-\x7e]|%[0-9a-f]{2})*)"')
_PARAMETER: Final = re.compile(r"; *([a-z*][a-z0-9_.*-]*)=")
_TOKEN: Final = re.compile(r"0|[1-9][0-9]{0,18}")


class Presented(NamedTuple):
    """The contents of a header: a resource, and the token, owner and mode of a lease. To check it with another fence:
    ``fence.check(…, presented.token, presented.owner)``, or ``fence.check(…, presented)``, which also tells it the mode
    and needs an owner."""

    resource: str
    token: int
    owner: str | None

    @property
    def mode(self) -> str:
        """``"read"`` for the lease of a read lock, else ``"exclusive"``."""
        return "exclusive"


class PresentedByReader(Presented):
    """What a header of a read lease contains. Equal to a Presented with the same contents."""

    mode = "read"


def header(resource: str, token: int | Lease, owner: str | None = None) -> dict[str, str]:
    """The header for a request that reads or writes ``resource``, for ``headers=`` of any HTTP client.

    Send it with the *first* request of a critical section, the one that reads: it raises the guard.
    """
    resource = names.validate(resource, what="resource name")
    incoming = bearer(token, owner)
    value = f'{_written(resource)};token="{incoming.token}"'
    if incoming.reads:
        value += ';mode="read"'
    return {NAME: value if incoming.owner is None else f"{value};owner={_written(incoming.owner)}"}


def parse(value: str) -> Presented:
    """Parse what ``header`` writes, in any form that RFC 9651 allows for it. ValueError for anything else."""
    if len(value) > _LONGEST:
        raise ValueError("it is too long")
    value = value.strip(" ")
    resource, position = _text_at(value, 0)
    parameters: dict[str, str] = {}
    while position < len(value):
        found = _PARAMETER.match(value, position)
        if found is None:
            raise ValueError(f"no parameter at character {position + 1}")
        name = found[1]
        if name not in ("token", "owner", "mode") or name in parameters:
            raise ValueError(f"parameter {name!r} is unknown, or given twice")
        if name != "owner" and value.startswith("%", found.end()):
            raise ValueError(f"the {name} is not a String")
        parameters[name], position = _text_at(value, found.end())
    token = parameters.get("token")
    if token is None or not _TOKEN.fullmatch(token):
        raise ValueError("it has no token, or one that is not a decimal number")
    return _checked(resource, int(token), parameters.get("owner"), parameters.get("mode"))


def _checked(resource: str, token: int, owner: str | None, mode: str | None) -> Presented:
    incoming: Bearer = bearer(token, owner)  # ValueError for a token or an owner that no lease has
    if mode is not None and (mode != "read" or owner is None):
        raise ValueError("its mode is not that of a read lease")
    resource = names.validate(resource, what="resource name")
    kind = Presented if mode is None else PresentedByReader
    return kind(resource, incoming.token, incoming.owner)


def _written(text: str) -> str:
    """As a String if it can be one, else as a Display String."""
    if _PRINTABLE.fullmatch(text):
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    plain = (chr(byte) if 0x20 <= byte <= 0x7E and byte not in b'%"' else f"%{byte:02x}" for byte in text.encode())
    return '%"' + "".join(plain) + '"'


def _text_at(value: str, position: int) -> tuple[str, int]:
    """The String or Display String at ``position``, and where it ends."""
    if found := _STRING.match(value, position):
        return re.sub(r"\\(.)", r"\1", found[1]), found.end()
    if found := _DISPLAY.match(value, position):
        content = re.sub(r"%(..)", lambda escape: chr(int(escape[1], 16)), found[1])
        try:
            return content.encode("latin-1").decode(), found.end()
        except UnicodeDecodeError:
            raise ValueError(f"not UTF-8 at character {position + 1}") from None
    raise ValueError(f"no text in quotes at character {position + 1}")
