"""What a grant says about its holder, read back strictly: whoever can write to the server can write anything. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from holdfast.engines.base import Holder, LockState

#: As the acquire script writes it: last token of the block, size of the block, time, owner, description.
_METADATA: Final = re.compile(rb"(\d{1,16}) (\d{1,9}) (\d{1,12}\.\d{6}) (\S{1,256}) (.{0,4096})", re.DOTALL)
_NUMBER: Final = re.compile(rb"\d{1,16}")
_LONGEST_TEXT: Final = 256


class _Grant(NamedTuple):
    owner: bytes
    token: int
    since: float
    description: dict[str, Any]


def lock_state(name: str, reply: Sequence[Any]) -> LockState:
    """The reply of the inspect script, for people."""
    fields, pttl, metadata, counter, waiters, seconds, micros = reply
    remaining = pttl / 1000.0 if pttl >= 0 else None
    until = None if remaining is None else int(seconds) + int(micros) / 1e6 + remaining
    grant = _grant(metadata)
    pairs = zip(fields[::2], fields[1::2], strict=True)
    # "mode" is not an owner: the hash is a Redisson read-write lock.
    holders = tuple(_holder(owner, count, grant, until) for owner, count in pairs if owner != b"mode")
    return LockState(name, holders, waiters, _number(counter), remaining if holders else None)


def _holder(owner: bytes, count: bytes, grant: _Grant | None, until: float | None) -> Holder:
    shown = owner.decode("utf-8", "replace")
    if grant is None or grant.owner != owner:
        return Holder(shown, until=until, count=_number(count))
    about = grant.description
    return Holder(
        shown,
        host=_text(about.get("host")),
        pid=_pid(about.get("pid")),
        thread=_text(about.get("thread")),
        program=_text(about.get("program")),
        since=grant.since,
        until=until,
        token=grant.token,
        count=_number(count),
    )


def _grant(metadata: bytes | None) -> _Grant | None:
    found = _METADATA.fullmatch(metadata or b"")
    if found is None:
        return None
    last, size, time, owner, description = found.groups()
    try:
        about = json.loads(description)
    except (ValueError, RecursionError):
        about = None
    # The first of the block: that of the holder, unless the hold was handed on inside its process.
    token = int(last) - int(size) + 1
    return _Grant(owner, token, float(time), about if isinstance(about, dict) else {})


def _number(value: bytes | None) -> int | None:
    return int(value) if value is not None and _NUMBER.fullmatch(value) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and len(value) <= _LONGEST_TEXT else None


def _pid(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 32 else None
