"""The state of a monitor: its variables as JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from holdfast.errors import InvalidState, UsageError
from holdfast.primitives.monitor.variables import Check


class Schema:
    """The variables of one monitor class: their checks, and their initial values."""

    def __init__(self, checks: Mapping[str, Check], initial: Mapping[str, Any]) -> None:
        self._checks = checks
        self.check(initial, None)
        self._initial = json.dumps(dict(initial))

    def check(self, values: Mapping[str, Any], name: str | None) -> None:
        """InvalidState if a value does not fit its annotation. ``name``: the monitor's."""
        for variable, check in self._checks.items():
            try:
                check(values[variable], variable)
            except InvalidState as error:
                raise InvalidState(error.path, error.expected, error.found, name=name) from None

    def initial(self) -> dict[str, Any]:
        values: dict[str, Any] = json.loads(self._initial)
        return values

    def encode(self, values: dict[str, Any], name: str, max_bytes: int) -> bytes:
        """As it is stored. InvalidState, or UsageError if it is too large."""
        self.check(values, name)
        try:
            data = _ENCODER.encode(values).encode()
        except UnicodeEncodeError as error:
            raise InvalidState("", "text that UTF-8 can represent", str(error), name=name) from error
        if len(data) > max_bytes:
            raise UsageError(
                f"the state of monitor {name!r} has {len(data)} bytes, more than max_bytes={max_bytes}: nothing was "
                "stored. Keep less in it, or refer to data that is elsewhere",
                name=name,
            )
        return data

    def decode(self, data: bytes, name: str) -> dict[str, Any]:
        """What is stored. A variable that it does not have has its initial value: the class has got it since.

        InvalidState for anything else that does not fit, also for variables that the class does not have: storing
        would drop them.
        """
        if not data:
            return self.initial()
        values = _parsed(data, name)
        for variable in values.keys() - self._checks.keys():
            raise InvalidState(variable, "no such variable", type(values[variable]).__name__, name=name)
        if len(values) < len(self._checks):
            values = self.initial() | values
        self.check(values, name)
        return values


def _parsed(data: bytes, name: str) -> dict[str, Any]:
    try:
        found = _DECODER.decode(data.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidState("", "a JSON object", f"{len(data)} bytes that are not JSON", name=name) from error
    if not isinstance(found, dict):
        raise InvalidState("", "a JSON object", type(found).__name__, name=name)
    return found


def _no_constant(constant: str) -> NoReturn:
    raise ValueError(f"not JSON: {constant}")


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)
