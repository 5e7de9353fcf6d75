"""The description of a holder or waiter that is stored with a lock: a JSON object, shown by ``inspect``.

It is needed for every claim, so all of it except the name of the thread or task is built once for each client.
"""

from __future__ import annotations

import json
import os
import sys
from json.encoder import encode_basestring_ascii
from typing import Final

#: The longest name of a thread, task, program or host, in characters, so that the stored description stays small.
_LONGEST: Final = 100
#: Values of ``sys.argv[0]`` that name no program: ``python -c``, ``python -m`` before it has found its module, none.
_NO_PROGRAM: Final = ("", "-", "-c", "-m")


class Description:
    """Describes the callers of one client in this process. A forked child makes its own."""

    __slots__ = ("_before",)

    def __init__(self, label: str | None) -> None:
        facts: dict[str, str | int] = {
            "host": os.uname().nodename[:_LONGEST],
            "pid": os.getpid(),
            "program": program()[:_LONGEST],
        }
        if label is not None:
            facts["label"] = label
        self._before: Final = f'{json.dumps(facts, separators=(",", ":"))[:-1]},"thread":'

    def of(self, thread: str) -> bytes:
        """The description of the thread or task of this name. ASCII only: a name may have lone surrogates."""
        return f"{self._before}{encode_basestring_ascii(thread[:_LONGEST])}}}".encode()


def with_value(description: bytes, value: str) -> bytes:
    """``description`` with a value that the caller gives."""
    return description[:-1] + f',"value":{encode_basestring_ascii(value)}}}'.encode()


def program() -> str:
    """The name of the running program, without its path, and never its arguments: those may hold a password."""
    path = sys.argv[0] if sys.argv else ""
    name = os.path.basename(path)
    if name == "__main__.py":  # python -m package
        name = os.path.basename(os.path.dirname(path)) or name
    return "python" if name in _NO_PROGRAM else name
