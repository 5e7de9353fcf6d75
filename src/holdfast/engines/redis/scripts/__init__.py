"""The Lua scripts: each is one atomic step of the engine. Read ``acquire.lua`` first.

Each file begins with its KEYS, ARGV, reply, and what a repeat does. Its encoder and decoder are in ``dialect/``. Those
of read-write locks begin with ``rw_``, those of semaphores with ``permits_``. Files that only define functions
(``holds``, ``owners``, ``permits``, ``publish``, ``raise_to``, ``readers``, ``register``, ``take``, ``token``,
``turn``, ``waiters``) are put before the scripts that use them.
"""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import Final


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
        return cls(name, resources.files(__package__).joinpath(f"{name}.lua").read_text("utf-8"))


def _together(*names: str) -> Script:
    """A script with the functions that it uses put before it; named after the last."""
    return Script(names[-1], "".join(Script.load(name).source for name in names))


ACQUIRE: Final = _together("token", "take", "turn", "acquire")
BREAK: Final = _together("token", "publish", "owners", "break")
ENQUEUE: Final = Script.load("enqueue")
EXTEND: Final = Script.load("extend")
HELD: Final = _together("owners", "held")
INSPECT: Final = _together("owners", "waiters", "inspect")
JOIN: Final = _together("raise_to", "take", "join")
LEAVE: Final = Script.load("leave")
LOAD: Final = _together("register", "load")
LOOK: Final = _together("register", "look")
PEEK: Final = _together("register", "peek")
PERMITS_ACQUIRE: Final = _together("publish", "turn", "permits", "permits_acquire")
PERMITS_BREAK: Final = _together("publish", "permits", "permits_break")
PERMITS_INSPECT: Final = _together("permits", "waiters", "permits_inspect")
PERMITS_RELEASE: Final = _together("publish", "permits", "permits_release")
PERMITS_RENEW: Final = _together("permits", "permits_renew")
PERMITS_RESIZE: Final = _together("publish", "permits", "permits_resize")
PING: Final = Script.load("ping")
RAISE: Final = _together("raise_to", "raise")
RELEASE: Final = _together("publish", "holds", "release")
RENEW: Final = _together("holds", "renew")
RW_ACQUIRE: Final = _together("token", "turn", "rw_acquire")
RW_BREAK: Final = _together("token", "publish", "owners", "rw_break")
RW_INSPECT: Final = _together("owners", "waiters", "rw_inspect")
RW_RELEASE: Final = _together("publish", "holds", "readers", "rw_release")
RW_RENEW: Final = _together("holds", "rw_renew")
STORE: Final = _together("register", "publish", "store")
SWAP: Final = _together("register", "publish", "swap")
TRANSFER: Final = _together("token", "take", "holds", "transfer")
