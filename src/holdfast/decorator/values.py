"""Which values may be part of a lock's name, and their texts.

Accepted: str, int, UUID, date, and Enum by its value. Each has the same text in every process and version of Python.
All others are refused: None and "" (all calls without a value would share one lock), bool ("True" here, "true" in other
programs), float and Decimal (1, 1.0, 1.00), datetime (time zones), bytes, containers and other objects (their text may
contain an address, which differs each time). ``__str__`` of subclasses is not called: it could return any text.
"""

from __future__ import annotations

import datetime
import enum
import uuid
from typing import Any, Final

from holdfast._core.names import MAX_BYTES
from holdfast.errors import InvalidName

_REMEDY: Final = "a key is made of str, int, UUID, date or Enum; give a callable key that returns one of these"
#: An int with more bits has more digits than a name may have. Python refuses to convert very long ones.
_MOST_BITS: Final = MAX_BYTES * 4
_FEW: Final = 10**18

_WHY: Final[tuple[tuple[type, str], ...]] = (
    (bool, "a bool, which other programs write in another way"),
    (datetime.datetime, "a datetime, whose text depends on its zone and precision"),
    (float, "a float, which has several texts"),
)


def text_of(value: Any, what: str) -> str:
    """The text of ``value`` in a name. InvalidName if it may not be part of one; ``what`` describes it there."""
    kind = type(value)
    if (kind is str and value) or (kind is int and -_FEW < value < _FEW):
        return str(value)
    # By type(), not isinstance: a proxy or mock passes isinstance for the type it imitates.
    if issubclass(kind, enum.Enum):
        return text_of(value.value, f"the value of {what}")
    if issubclass(kind, str):
        text = str.__str__(value)
        if not text:
            raise InvalidName(f"{what} is empty: all calls with an empty value would share one lock")
        return text
    if issubclass(kind, int) and kind is not bool:
        if int.bit_length(value) > _MOST_BITS:
            raise InvalidName(f"{what} is an int with too many digits for a lock name of at most {MAX_BYTES} bytes")
        return int.__repr__(value)
    if issubclass(kind, uuid.UUID):
        return uuid.UUID.__str__(value)
    if issubclass(kind, datetime.date) and not issubclass(kind, datetime.datetime):
        return datetime.date.isoformat(value)
    raise InvalidName(f"{what} is {_described(value)}: {_REMEDY}")


def escaped(value: Any, what: str) -> str:
    """As ``text_of``, with ``%`` and ``:`` of a str percent-encoded: for names with two placeholders or more.

    The other types contain neither, so an id has the same text as a str and as an int or UUID.
    """
    return text_of(value, what).replace("%", "%25").replace(":", "%3A")


def _described(value: object) -> str:
    if value is None:
        return "None, which all calls without a value would share"
    for kind, why in _WHY:
        if issubclass(type(value), kind):
            return why
    return f"of type {type(value).__qualname__}"
