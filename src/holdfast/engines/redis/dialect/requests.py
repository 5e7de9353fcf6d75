"""Requests as bytes, and replies that may be errors. Pure.

Packing is a good part of what a lock costs on this side of the wire, and most of a request is the same every time. So
its unchanging parts are packed once: :class:`Opening` (script and keys of one lock) and :class:`Closing` (settings).
What is new in each request is the claim's owner, in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final, Literal, overload

import hiredis

from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.dialect import replies
from holdfast.engines.redis.dialect.packing import Argument, pack
from holdfast.engines.redis.scripts import Script

#: How a release is told to waiters who subscribe. Sharded only in a cluster, where Redisson prefers it too.
Publish = Literal["PUBLISH", "SPUBLISH", "BOTH"]

#: The heads of words by their length; an owner has some 56 characters.
_HEADS_CAP: Final = 128
_ASKING: Final = pack(("ASKING",))
#: No ACL refuses it, and its answer tells the role.
HELLO: Final = pack(("HELLO",))
#: A server looks at its clock ten times a second: WAIT may take this much longer than it was told.
_LATE: Final = 0.15
_HEADS: Final = tuple(b"$%d\r\n" % length for length in range(_HEADS_CAP))


class Opening(tuple[str, ...]):  # noqa: SLOT001  (a tuple's subclass cannot have slots of its own)
    """The keys of one lock for one script that takes ``arguments`` arguments."""

    packed: bytes

    @classmethod
    def of(cls, script: Script, keys: tuple[str, ...], arguments: int) -> Opening:
        opening = cls(keys)
        words: tuple[Argument, ...] = ("EVALSHA", script.sha, len(keys), *keys)
        opening.packed = b"*%d\r\n%b" % (len(words) + arguments, _without_head(pack(words)))
        return opening


class Closing(tuple[Argument, ...]):  # noqa: SLOT001
    """The arguments that are the same for many calls."""

    packed: bytes

    @classmethod
    def of(cls, *arguments: Argument) -> Closing:
        closing = cls(arguments)
        closing.packed = _without_head(pack(arguments))
        return closing

    @classmethod
    def around(cls, before: Closing, word: bytes, after: Closing) -> Closing:
        """Two that are the same for many calls, with a word between them that is not."""
        closing = cls((*before, word, *after))
        closing.packed = b"%b$%d\r\n%b\r\n%b" % (before.packed, len(word), word, after.packed)
        return closing


class Arguments(Sequence[Argument]):
    """An owner, and the arguments after it."""

    __slots__ = ("closing", "owner")

    def __init__(self, owner: str, closing: Closing) -> None:
        self.owner = owner
        self.closing = closing

    def __len__(self) -> int:
        return 1 + len(self.closing)

    def __iter__(self) -> Iterator[Argument]:
        yield self.owner
        yield from self.closing

    @overload
    def __getitem__(self, index: int) -> Argument: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Argument]: ...
    def __getitem__(self, index: int | slice) -> Argument | Sequence[Argument]:
        return (self.owner, *self.closing)[index]


class Call:
    """One script with its keys and arguments, packed once, to however many servers it goes.

    ``watched``: the keys to be tracked afterwards, where it goes over the connection that guards what is held.
    """

    __slots__ = ("args", "keys", "packed", "script", "watched")

    #: One command that is no script. It reads, and so tracks, what it names.
    plain: ClassVar[bool] = False

    def __init__(
        self, script: Script, keys: Sequence[str], args: Sequence[Argument], watched: Sequence[str] = ()
    ) -> None:
        self.script = script
        self.keys = keys
        self.args = args
        self.watched = watched
        self.packed = call_by_digest(script, keys, args)

    def by_source(self) -> bytes:
        return call_by_source(self.script, self.keys, self.args)


class Plain(Call):
    """One plain command, whose key is its second word, in the place of a script: followed and announced like one."""

    __slots__ = ()

    plain = True

    def __init__(self, *words: Argument) -> None:
        self.args = words
        self.keys = self.watched = (str(words[1]),)
        self.packed = pack(words)


def wait_for_replicas(replicas: int, timeout: float) -> bytes:
    """WAIT: how many replicas have all that this connection wrote so far. A little shorter than the request may take,
    so that the answer "too few" still arrives."""
    seconds = max(timeout - max(timeout / 5, _LATE), timeout / 3)
    return pack(("WAIT", replicas, max(1, int(seconds * 1000))))


def around(packed: bytes, replicas: int, timeout: float, *, asking: bool) -> list[bytes]:
    """A request, and what must stand beside it on the same connection: ASKING before, WAIT after."""
    before = [_ASKING] if asking else []
    return [*before, packed, wait_for_replicas(replicas, timeout)] if replicas else [*before, packed]


def acknowledged(answers: Sequence[Any], replicas: int) -> tuple[Any, int]:
    """What came back for ``around``: the reply, if it is none of the errors, and how many replicas have it."""
    if not replicas:
        return checked(answers[-1]), 0
    reply, count = checked(answers[-2]), answers[-1]
    if count.__class__ is hiredis.ReplyError:
        error = replies.error(str(count))
        if isinstance(error, RequestFailed):
            return reply, 0  # demoted while we waited: whoever follows it now does not have our write from it
        raise replies.WaitRefused(str(error), reply)
    return reply, count


def unacknowledged(found: int, needed: int) -> RequestFailed:
    return RequestFailed(
        f"only {found} of {needed} replicas acknowledged in time; see replicas= and the replication link",
        may_have_happened=True,
    )


def out_of_time() -> RequestFailed:
    """Of a batch that took longer than it may: this part of it was not sent."""
    return RequestFailed("not sent: the time for all of the batch is over", may_have_happened=False)


def call_by_digest(script: Script, keys: Sequence[str], args: Sequence[Argument]) -> bytes:
    """The usual call of a script."""
    if keys.__class__ is Opening and args.__class__ is Arguments:
        owner = args.owner.encode()
        length = len(owner)
        head = _HEADS[length] if length < _HEADS_CAP else b"$%d\r\n" % length
        return b"".join((keys.packed, head, owner, b"\r\n", args.closing.packed))
    return pack(("EVALSHA", script.sha, len(keys), *keys, *args))


def call_by_source(script: Script, keys: Sequence[str], args: Sequence[Argument]) -> bytes:
    """The call after NOSCRIPT: runs the script *and* has the server remember it, with no further permission."""
    return pack(("EVAL", script.source, len(keys), *keys, *args))


def is_demotion(reply: Any) -> bool:
    """Whether the server is no master any more (a failover): all connections to it lead to the wrong place."""
    return reply.__class__ is hiredis.ReplyError and replies.is_demotion(str(reply))


def is_master(greeting: Any) -> bool:
    """Whether the answer to HELLO is that of a server which serves as a master, as far as it says."""
    return greeting.__class__ is dict and greeting.get(b"role") not in replies.REPLICA


def is_unknown_script(reply: Any) -> bool:
    """Whether the server does not know the script (it was flushed, or the server was restarted): it did not run."""
    return reply.__class__ is hiredis.ReplyError and str(reply).startswith("NOSCRIPT")


def checked(reply: Any) -> Any:
    """``reply``, unless it is an error: that is raised as what it means."""
    if reply.__class__ is hiredis.ReplyError:
        raise replies.error(str(reply))
    return reply


def explained(reply: Any) -> Any:
    """As ``checked``, but the exception is returned: one of several answers."""
    return replies.error(str(reply)) if reply.__class__ is hiredis.ReplyError else reply


def _without_head(packed: bytes) -> bytes:
    return packed[packed.index(b"\n") + 1 :]
