"""What an error reply of the server means: try again, or do not. No I/O."""

from __future__ import annotations

import re
from typing import Any, Final

import hiredis

from holdfast.engines.base import Kind, RequestFailed
from holdfast.errors import EngineRefused

#: One of several requests that were sent together: its reply, or what would have been raised if it had been alone.
Answer = Any | RequestFailed | EngineRefused

#: The server answers, but cannot serve now. This error comes before anything was executed or, for a script, before its
#: first write: our scripts write nothing that is allowed without memory before what is not. So nothing can have
#: happened.
_UNAVAILABLE: Final = frozenset(
    {"BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "READONLY", "UNBLOCKED"}
)
_HINTS: Final = {
    "ASK": "this server is a node of a Redis Cluster; connect with redis+cluster://",
    "MOVED": "this server is a node of a Redis Cluster; connect with redis+cluster://",
    "NOAUTH": "give a user name and password",
    "READONLY": "this server is a replica; locks are taken at its master, which redis+sentinel:// finds by itself",
    "NOPERM": "its ACL must allow this user the lock's commands and keys; `holdfast doctor` names what is missing",
    "WRONGPASS": "check the user name and password",
}
#: The roles, in the answer to HELLO, of a server that is no master.
REPLICA_ROLES: Final = frozenset({b"replica", b"slave"})
#: The answers of a server that is no master any more: to a write, to a WAIT that it broke off, and to a new WAIT.
_DEMOTED: Final = frozenset({"READONLY", "UNBLOCKED"})
_NO_WAIT: Final = "ERR WAIT cannot be used with replica"
#: Before Redis 7 an error inside a script is wrapped: "ERR Error running script (…): @user_script:9: -OOM command …"
_IN_SCRIPT: Final = re.compile(r"@user_script: ?\d+: -?([A-Z]+) ")
#: An ACL let the script run, but not one of its commands. Redis 7.0 does not name it.
_DENIED_IN_SCRIPT: Final = re.compile(r"The user executing the script can't run this command|ACL failure in script")
#: The scripts' error for a hash that is not a lock.
_NOT_A_LOCK: Final = "HOLDFAST NOTALOCK"
#: The scripts' error for a string that is not a semaphore.
_NOT_A_SEMAPHORE: Final = "HOLDFAST NOTASEMAPHORE"
#: The scripts' error for a name that is in use as another kind.
_KIND: Final = re.compile(r"HOLDFAST KIND (\w+)")
_CODE: Final = re.compile(r"[A-Z]+(?= )")
_REDIRECTION: Final = re.compile(r"(MOVED|ASK) (\d+) (\S*):(\d+)")
#: A key that the script built is not here any more (or not yet): its slot is being moved. Our scripts check the keys
#: that were declared before they write, so this one must belong to another waiter. (Redis 6.2, 7 and Valkey begin the
#: sentence differently.)
_HALF_MOVED: Final = re.compile(r"\battempted to access a non local key\b", re.IGNORECASE)
#: Old servers repeat the arguments of a command that they do not know, and HELLO's hold the password.
_ARGUMENTS: Final = re.compile(r",? with args beginning with.*", re.DOTALL)


class TryAgain(RequestFailed):
    """Raised when the keys of a request are on two nodes of a cluster: their slot is being moved at this moment."""


class Redirected(EngineRefused):
    """Raised when another node of a cluster serves the keys. A refusal, unless the channel can follow."""

    def __init__(self, message: str, *, slot: int, host: str, port: int, once: bool) -> None:
        super().__init__(message)
        self.slot = slot
        self.host = host  #: empty: that of the server that answered
        self.port = port
        self.once = once  #: ASK: this request only, and announced


class WaitRefused(EngineRefused):
    """Raised when the script ran, and the server then refused to report how many replicas have it."""

    def __init__(self, message: str, reply: Any) -> None:
        super().__init__(f"{message}: replicas= needs the right to WAIT")
        self.reply = reply  #: of the script


class WrongType(EngineRefused):
    """Raised when a key of the lock holds a value of another type. The session finds out which, and reports it."""


class NotALock(WrongType):
    """Raised when the key of the lock is a hash of something else."""


class OtherKind(EngineRefused):
    """Raised when the name is in use as another kind of object. The session reports which was wanted."""

    def __init__(self, found: Kind) -> None:
        super().__init__(f"the name is in use as a {found.value}")
        self.found = found


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
    if kind == "TRYAGAIN" or _HALF_MOVED.search(text):
        return TryAgain(f"Redis cannot serve at present: {text}", may_have_happened=kind != "TRYAGAIN")
    if _NOT_A_LOCK in text:
        return NotALock("the key holds a hash whose fields are not owners of a lock; it was not touched")
    if _NOT_A_SEMAPHORE in text:
        return WrongType("the key holds a string that is not a number; it was not touched")
    if other := _KIND.search(text):
        return OtherKind(Kind(other[1]))
    if _DENIED_IN_SCRIPT.search(text):
        kind = "NOPERM"
    hint = f" ({_HINTS[kind]})" if kind in _HINTS else ""
    if kind in _UNAVAILABLE or text.startswith(("ERR max number of clients", _NO_WAIT)):
        return RequestFailed(f"Redis cannot serve at present: {text}{hint}", may_have_happened=False)
    if kind == "WRONGTYPE":
        return WrongType("key holds a value of another type, probably another lock library's; use namespace=")
    if redirection := _REDIRECTION.match(text):
        word, slot, host, port = redirection.groups()
        refused = f"Redis refused: {text}{hint}"
        return Redirected(refused, slot=int(slot), host=host, port=int(port), once=word == "ASK")
    return EngineRefused(f"Redis refused: {text}{hint}")


def checked(reply: Any) -> Any:
    """``reply``, unless it is an error: that is raised as what it means."""
    if reply.__class__ is hiredis.ReplyError:
        raise error(str(reply))
    return reply


def explained(reply: Any) -> Any:
    """As ``checked``, but the exception is returned: one of several answers."""
    return error(str(reply)) if reply.__class__ is hiredis.ReplyError else reply


def is_demotion(reply: Any) -> bool:
    """Whether the server is no master any more (a failover): all connections to it lead to the wrong server."""
    if reply.__class__ is not hiredis.ReplyError:
        return False
    text = str(reply)
    return code(text) in _DEMOTED or text.startswith(_NO_WAIT)


def is_master(greeting: Any) -> bool:
    """Whether the answer to HELLO is that of a server which serves as a master, as far as the answer shows."""
    return greeting.__class__ is dict and greeting.get(b"role") not in REPLICA_ROLES


def is_unknown_script(reply: Any) -> bool:
    """Whether the server does not know the script (it was flushed, or the server was restarted): it did not run."""
    return reply.__class__ is hiredis.ReplyError and str(reply).startswith("NOSCRIPT")


def out_of_time() -> RequestFailed:
    """The answer for that part of a batch which was not sent, because the batch took too long."""
    return RequestFailed("not sent: the time for all of the batch is over", may_have_happened=False)
