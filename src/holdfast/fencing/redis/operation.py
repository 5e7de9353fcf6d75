"""The arguments of the script, and the meaning of its reply. No I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Any, Final, NamedTuple, NoReturn

from holdfast.errors import EngineRefused, UsageError
from holdfast.fencing.redis.keys import Key, guard_key
from holdfast.fencing.rule import Bearer, admit, passed

SOURCE: Final = resources.files(__package__).joinpath("fence.lua").read_text("utf-8")
SHA: Final = hashlib.sha1(SOURCE.encode(), usedforsecurity=False).hexdigest()

#: What redis-py can send.
Value = str | bytes | int | float
_NOTHING: Final = ""
_SCRIPT: Final = "script"


class Operation(NamedTuple):
    """One call of the script. ``words`` is what follows the script in EVAL: number of keys, keys, arguments."""

    resource: str
    incoming: Bearer
    words: tuple[Value, ...]

    def result(self, reply: Any) -> Any:
        """The command's own reply. Any other reply of the script is raised as an error."""
        kind, *rest = reply
        match _text(kind):
            case "passed":
                passed(self.resource, self.incoming)
                answer = rest[0] if rest else None  # a nil at the end of a Lua table is not sent
                if isinstance(answer, Exception):
                    raise answer  # an error that the program's script returned, as a value
                return answer
            case "stale":
                self._refuse(*map(_text, rest))
            case "syntax":
                raise UsageError(f"the script has a syntax error, and nothing was changed: {_text(rest[0])}")
            case _:
                raise EngineRefused(
                    f"the fence of {self.resource!r} cannot be read, so every token is refused: the key "
                    f"{guard_key(self.resource)!r} holds something else. Delete it once no process is left that held "
                    "the lock before"
                )

    def _refuse(self, token: str, owner: str) -> NoReturn:
        admit(self.resource, Bearer(int(token), owner[1:] if owner[0] == "+" else None), self.incoming)
        raise EngineRefused(
            f"the fence of {self.resource!r} refused token {token}, which it should accept; is the client's encoding "
            "another one than UTF-8?"
        )


def check(resource: str, incoming: Bearer, ttl: int) -> Operation:
    """Only check the token, and raise the guard."""
    return _operation(resource, incoming, ttl, [], _NOTHING)


def command(resource: str, incoming: Bearer, ttl: int, name: str, key: Key, *arguments: Value) -> Operation:
    """Check, then call the command ``name`` with the key and the arguments."""
    if incoming.reads and name != "GET":
        raise UsageError(f"a read lease cannot change {resource!r}: use the lease of the write lock")
    return _operation(resource, incoming, ttl, [key], name, *arguments)


def script(
    resource: str, incoming: Bearer, ttl: int, source: str, keys: Sequence[Key], arguments: Sequence[Value]
) -> Operation:
    """Check, then run the program's script, which is sent as an argument, not inserted into ours."""
    if source.startswith("#!"):
        raise UsageError("a fenced script runs inside another one and cannot have a '#!lua' line: remove it")
    return _operation(resource, incoming, ttl, keys, _SCRIPT, source, *arguments)


def _operation(
    resource: str, incoming: Bearer, ttl: int, keys: Sequence[Key], name: str, *arguments: Value
) -> Operation:
    # As bytes: the client's own encoding may not be UTF-8.
    owner = b"<" if incoming.reads else b"-" if incoming.owner is None else b"+" + incoming.owner.encode()
    words = (1 + len(keys), guard_key(resource).encode(), *keys, str(incoming.token), owner, ttl, name, *arguments)
    return Operation(resource, incoming, words)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
