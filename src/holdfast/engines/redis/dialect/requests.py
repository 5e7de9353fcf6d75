"""Requests as bytes: one script with its keys and arguments. No I/O.

Packing is a good part of what a lock costs on this side of the wire, and most of a request is the same every time. So
its unchanging parts are packed once: :class:`Opening` (script and keys of one lock) and :class:`Closing` (settings).
Only the claim's owner, between them, is new in each request.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final, Literal, overload

from holdfast.engines.redis.dialect.packing import Argument, pack
from holdfast.engines.redis.scripts import Script

#: How a release is published to waiters that subscribe. Sharded only in a cluster, where Redisson prefers it too.
Publish = Literal["PUBLISH", "SPUBLISH", "BOTH"]

#: The heads of words by their length; an owner has some 56 characters, a description 100 or more.
HEADS_CAP: Final = 1024
HEADS: Final = tuple(b"$%d\r\n" % length for length in range(HEADS_CAP))


def head(length: int) -> bytes:
    """What is sent before a word of this length."""
    return HEADS[length] if length < HEADS_CAP else b"$%d\r\n" % length


class Opening(tuple[str, ...]):  # noqa: SLOT001  (a tuple's subclass cannot have slots of its own)
    """The keys of one lock for one script that takes ``arguments`` arguments, and ``more`` keys before these."""

    script: Script
    packed: bytes

    @classmethod
    def of(cls, script: Script, keys: tuple[str, ...], arguments: int, more: int = 0) -> Opening:
        opening = cls(keys)
        opening.script = script
        words: tuple[Argument, ...] = ("EVALSHA", script.sha, len(keys) + more, *keys)
        opening.packed = b"*%d\r\n%b" % (len(words) + more + arguments, _without_head(pack(words)))
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


def packed_around(opening: Opening, owner: str, closing: Closing) -> bytes:
    """A request whose unchanging parts are packed."""
    word = owner.encode()
    return b"".join((opening.packed, head(len(word)), word, b"\r\n", closing.packed))


class Call:
    """One script with its keys and arguments, packed once, however many servers it is sent to.

    ``watched``: the keys to be tracked afterwards, where the call goes over the watchdog's tracking connection.
    """

    __slots__ = ("args", "keys", "packed", "script", "watched")

    #: One command that is no script. It reads, and so tracks, what it names.
    plain: ClassVar[bool] = False

    def __init__(
        self,
        script: Script,
        keys: Sequence[str],
        args: Sequence[Argument],
        watched: Sequence[str] = (),
        packed: bytes | None = None,
    ) -> None:
        self.script = script
        self.keys = keys
        self.args = args
        self.watched = watched
        if packed is not None:
            self.packed = packed
        elif keys.__class__ is Opening and args.__class__ is Arguments:
            self.packed = packed_around(keys, args.owner, args.closing)
        else:
            self.packed = pack(("EVALSHA", script.sha, len(keys), *keys, *args))

    def by_source(self) -> bytes:
        """The call after NOSCRIPT: runs the script *and* has the server remember it, with no further permission."""
        return by_source(self.script, self.packed)


def by_source(script: Script, packed: bytes) -> bytes:
    """The request ``packed`` with the text of ``script`` in the place of its digest."""
    words, _, rest = packed.partition(_by_digest(script.sha))
    return b"%b%b%b" % (words, _without_head(pack(("EVAL", script.source))), rest)


class Packed(Call):
    """A call that was packed piece by piece."""

    __slots__ = ()

    def __init__(self, keys: Opening, packed: bytes) -> None:
        self.script = keys.script
        self.keys = keys
        self.packed = packed


class Plain(Call):
    """One plain command, whose key is its second word, in the place of a script: followed and announced like one."""

    __slots__ = ()

    plain = True

    def __init__(self, *words: Argument) -> None:
        self.args = words
        self.keys = self.watched = (str(words[1]),)
        self.packed = pack(words)


def _by_digest(sha: str) -> bytes:
    return _without_head(pack(("EVALSHA", sha)))


def _without_head(packed: bytes) -> bytes:
    return packed[packed.index(b"\n") + 1 :]
