"""What an error reply of the server means: try again, or do not. Pure."""

from __future__ import annotations

import re
from typing import Final

from holdfast.engines.base import RequestFailed
from holdfast.errors import EngineRefused

#: The server answers, but cannot serve now. It says so before anything was executed or, for a script, before its first
#: write: our scripts write nothing that is allowed without memory before what is not, so nothing can have happened.
_UNAVAILABLE: Final = frozenset(
    {"BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "READONLY", "TRYAGAIN"}
)
_HINTS: Final = {
    "MOVED": "this server is a node of a Redis Cluster; connect with redis+cluster://",
    "NOAUTH": "give a user name and password",
    "NOPERM": "its ACL must allow this user the lock's commands and keys",
    "WRONGPASS": "check the user name and password",
}
#: Before Redis 7 an error inside a script is wrapped: "ERR Error running script (…): @user_script:9: -OOM command …"
_IN_SCRIPT: Final = re.compile(r"@user_script: ?\d+: -?([A-Z]+) ")
_CODE: Final = re.compile(r"[A-Z]+(?= )")
#: Old servers repeat the arguments of a command that they do not know, and HELLO's hold the password.
_ARGUMENTS: Final = re.compile(r",? with args beginning with.*", re.DOTALL)


class WrongType(EngineRefused):
    """Raised when a key of the lock holds a value of another type. The session finds out which, and says so."""


def code(text: str) -> str:
    """The machine-readable first word of an error reply: ERR, OOM, WRONGTYPE …"""
    inner = _IN_SCRIPT.search(text)
    if inner is not None:
        return inner[1]
    first = _CODE.match(text)
    return first[0] if first is not None else "ERR"


def shown(text: str) -> str:
    """An error reply fit for people to see."""
    return _ARGUMENTS.sub("", text)


def error(text: str) -> RequestFailed | EngineRefused:
    """The exception for the error reply ``text`` (without its leading '-')."""
    kind = code(text)
    text = shown(text)
    if kind in _UNAVAILABLE or text.startswith("ERR max number of clients"):
        return RequestFailed(f"Redis cannot serve at present: {text}", may_have_happened=False)
    if kind == "WRONGTYPE":
        return WrongType("key holds a value of another type, probably another lock library's; use namespace=")
    hint = f" ({_HINTS[kind]})" if kind in _HINTS else ""
    return EngineRefused(f"Redis refused: {text}{hint}")
