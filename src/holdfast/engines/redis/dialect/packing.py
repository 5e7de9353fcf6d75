"""Commands as bytes. No I/O."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, cast

import hiredis

Argument = str | bytes | int

# (The driver's own annotation knows only commands of one word.)
_pack: Final = cast(Callable[[tuple[Argument, ...]], bytes], hiredis.pack_command)


def milliseconds(seconds: float) -> int:
    """A duration as Redis counts it, rounded up: a lease never ends earlier than promised."""
    return math.ceil(seconds * 1000)


def counter_ttl(token_ttl: float | None) -> int:
    """How long a fencing counter lasts after its last use, in ms; 0: it never expires."""
    return 0 if token_ttl is None else milliseconds(token_ttl)


def pack(words: tuple[Argument, ...]) -> bytes:
    """One command as it goes over the wire.

    Numbers become text here: CPython looks for signals while it writes a number, and hiredis does not expect that to
    fail. Ctrl-C at that moment was a segmentation fault.
    """
    return _pack(tuple([str(word) if word.__class__ is int else word for word in words]))


#: No ACL refuses it, and its answer contains the role.
HELLO: Final = pack(("HELLO",))


class Packer:
    """For redis-py's handshake, in place of its own packer, which gives hiredis numbers."""

    def pack(self, command: str, *words: Argument) -> list[bytes]:
        return [pack((*command.split(), *words))]
