"""The Lua scripts: each is one atomic step of the engine, and says in its head what a repeat of it does."""

from __future__ import annotations

from typing import Final

from holdfast.engines.redis.channel import Script


def _issuing(name: str) -> Script:
    """A script that issues fencing tokens: the one rule for them is put before it."""
    return Script(name, Script.load("token").source + Script.load(name).source)


ACQUIRE: Final = _issuing("acquire")
BREAK: Final = _issuing("break")
ENQUEUE: Final = Script.load("enqueue")
INSPECT: Final = Script.load("inspect")
LEAVE: Final = Script.load("leave")
PING: Final = Script.load("ping")
RELEASE: Final = Script.load("release")
RENEW: Final = Script.load("renew")
