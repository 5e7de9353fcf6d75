"""Commands as bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

import hiredis

Argument = str | bytes | int

# (The driver's own annotation knows only commands of one word.)
_pack: Final = cast(Callable[[tuple[Argument, ...]], bytes], hiredis.pack_command)


def pack(words: tuple[Argument, ...]) -> bytes:
    """One command as it goes over the wire.

    Numbers become text here: CPython looks for signals while it writes a number, and hiredis does not expect that to
    fail. Ctrl-C at that moment was a segmentation fault.
    """
    return _pack(tuple([str(word) if word.__class__ is int else word for word in words]))


class Packer:
    """For redis-py's handshake, in place of its own packer, which gives hiredis numbers."""

    def pack(self, command: str, *words: Argument) -> list[bytes]:
        return [pack((*command.split(), *words))]
