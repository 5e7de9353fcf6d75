"""The Lua scripts: each is one atomic step of the engine. Read ``acquire.lua`` first.

Each file begins with its KEYS, ARGV, reply, and what a repeat does. Its encoder and decoder are in ``dialect/``. Those
of read-write locks begin with ``rw_``, those of semaphores with ``permits_``. Files that only define functions say so
in their first line.

A line ``-- include publish yield`` stands for the text of these files. A script makes its functions anew whenever it
runs, and a function costs a tenth of a command: so they are included inside of the case that uses them. An argument
costs a quarter of a command, and so does a key; each byte of a text that Lua makes or is given is hashed; a number that
is passed to a command, in place of a text, costs half of one. Three scripts,
``acquire_load``, ``acquire_or_join`` and ``store_release``, include whole scripts as functions.
"""

from __future__ import annotations

import hashlib
import re
from importlib import resources
from typing import Final

_INCLUDE: Final = re.compile(r"^ *-- include ([a-z_ ]+)\n", re.MULTILINE)


class Script:
    """One of the shipped Lua files. Only its digest is sent, unless a server answers that it does not know it."""

    __slots__ = ("name", "sha", "source")

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.source = source
        self.sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()

    @classmethod
    def load(cls, name: str) -> Script:
        """The script ``<name>.lua`` of this package."""
        return cls(name, _source(name))


def _source(name: str) -> str:
    """The text of ``<name>.lua``, with what it includes."""
    text = resources.files(__package__).joinpath(f"{name}.lua").read_text("utf-8")
    return _INCLUDE.sub(lambda line: "".join(map(_source, line[1].split())), text)


ACQUIRE: Final = Script.load("acquire")
ACQUIRE_FREE: Final = Script.load("acquire_free")
ACQUIRE_LOAD: Final = Script.load("acquire_load")
ACQUIRE_OR_JOIN: Final = Script.load("acquire_or_join")
BREAK: Final = Script.load("break")
ENQUEUE: Final = Script.load("enqueue")
EXTEND: Final = Script.load("extend")
HELD: Final = Script.load("held")
INSPECT: Final = Script.load("inspect")
JOIN: Final = Script.load("join")
LATCH_PEEK: Final = Script.load("latch_peek")
LATCH_SWAP: Final = Script.load("latch_swap")
LEAVE: Final = Script.load("leave")
LOAD: Final = Script.load("load")
LOOK: Final = Script.load("look")
LOOK_ALL: Final = Script.load("look_all")
PEEK: Final = Script.load("peek")
PERMITS_ACQUIRE: Final = Script.load("permits_acquire")
PERMITS_BREAK: Final = Script.load("permits_break")
PERMITS_INSPECT: Final = Script.load("permits_inspect")
PERMITS_RELEASE: Final = Script.load("permits_release")
PERMITS_RENEW: Final = Script.load("permits_renew")
PERMITS_RESIZE: Final = Script.load("permits_resize")
PING: Final = Script.load("ping")
RAISE: Final = Script.load("raise")
RELEASE: Final = Script.load("release")
RENEW: Final = Script.load("renew")
RW_ACQUIRE: Final = Script.load("rw_acquire")
RW_BREAK: Final = Script.load("rw_break")
RW_INSPECT: Final = Script.load("rw_inspect")
RW_RELEASE: Final = Script.load("rw_release")
RW_RENEW: Final = Script.load("rw_renew")
STORE: Final = Script.load("store")
STORE_RELEASE: Final = Script.load("store_release")
SWAP: Final = Script.load("swap")
TRANSFER: Final = Script.load("transfer")
