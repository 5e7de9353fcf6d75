"""Requests as bytes, and replies that may be errors. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import hiredis

from holdfast.engines.redis import replies
from holdfast.engines.redis.channel import Argument, Script

#: One command as it goes over the wire. (The driver's own annotation knows only commands of one word.)
pack: Final = cast(Callable[[tuple[Argument, ...]], bytes], hiredis.pack_command)


def call_by_digest(script: Script, keys: Sequence[str], args: Sequence[Argument]) -> bytes:
    """The usual call of a script."""
    return pack(("EVALSHA", script.sha, len(keys), *keys, *args))


def call_by_source(script: Script, keys: Sequence[str], args: Sequence[Argument]) -> bytes:
    """The call after NOSCRIPT: runs the script *and* has the server remember it, with no further permission."""
    return pack(("EVAL", script.source, len(keys), *keys, *args))


def is_unknown_script(reply: Any) -> bool:
    """Whether the server does not know the script (it was flushed, or the server was restarted): it did not run."""
    return reply.__class__ is hiredis.ReplyError and str(reply).startswith("NOSCRIPT")


def checked(reply: Any) -> Any:
    """``reply``, unless it is an error: that is raised as what it means."""
    if reply.__class__ is hiredis.ReplyError:
        raise replies.error(str(reply))
    return reply
