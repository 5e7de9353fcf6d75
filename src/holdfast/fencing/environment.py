"""The lease of the ``holdfast run`` that started this program, for use with a fence."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from holdfast._config import names
from holdfast.errors import InvalidName, UsageError
from holdfast.fencing.rule import LARGEST_TOKEN

_NAME: Final = "HOLDFAST_NAME"
_TOKEN: Final = "HOLDFAST_TOKEN"
_OWNER: Final = "HOLDFAST_OWNER"
_MODE: Final = "HOLDFAST_MODE"
_MODES: Final = ("exclusive", "read", "write", "permits")
_DECIMAL: Final = re.compile(r"0|[1-9][0-9]{0,18}")  # in one spelling: int() would also take " 1_0 "


@dataclass(frozen=True, slots=True)
class InheritedLease:
    """A lock that another process holds for this one: its name, token and owner. Every fence accepts it as a lease.

    It does not know whether the lock is still held: ``holdfast run`` does, and ends this program when the lock is lost.
    The fence refuses a write that comes too late.
    """

    name: str
    token: int
    owner: str
    mode: str = "exclusive"  #: with ``holdfast run --shared``, ``"read"``: a fence accepts it, and does not remember it


def from_env(environment: Mapping[str, str] = os.environ) -> InheritedLease:
    """The lease under which ``holdfast run NAME -- CMD`` started this program, from ``HOLDFAST_NAME``,
    ``HOLDFAST_TOKEN``, ``HOLDFAST_OWNER`` and ``HOLDFAST_MODE``, without which the lock counts as exclusive.

    Does no I/O. Raises :class:`holdfast.UsageError` if one of them is absent or malformed. The variables are inherited
    by every process that CMD starts: one that outlives CMD still carries them, and is then refused by the fence.
    """
    name, token, owner = (_required(environment, variable) for variable in (_NAME, _TOKEN, _OWNER))
    if not _DECIMAL.fullmatch(token) or int(token) > LARGEST_TOKEN:
        raise UsageError(f"{_TOKEN} is {token!r}, not a fencing token; start this program with 'holdfast run'")
    try:
        names.validate(name)
        names.validate(owner, what="lease owner")
    except InvalidName as error:
        raise UsageError(f"{_NAME} or {_OWNER} is not what 'holdfast run' sets: {error}") from error
    mode = environment.get(_MODE, _MODES[0])
    if mode not in _MODES:
        raise UsageError(f"{_MODE} is {mode!r}, not one of {', '.join(_MODES)}; start this program with 'holdfast run'")
    return InheritedLease(name, int(token), owner, mode)


def _required(environment: Mapping[str, str], variable: str) -> str:
    value = environment.get(variable)
    if not value:
        raise UsageError(
            f"{variable} is {'not set' if value is None else 'empty'}: this program was not started by "
            "'holdfast run NAME -- CMD'. Start it that way, or pass a lease of your own to the fence"
        )
    return value
