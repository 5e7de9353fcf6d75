"""The head of a key: its body in a canonical form, and the paths of all objects of the key. Pure."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any, Final, NamedTuple

from holdfast._config import names
from holdfast.errors import InvalidName
from holdfast.fencing.rule import Bearer, bearer

_FORMAT: Final = "holdfast object 1"
#: Longer than any head: key, owner and two targets of at most 600 bytes each, of which JSON may expand each to six.
LONGEST: Final = 16_384
_DATA: Final = re.compile(r"([0-9]{19})-[0-9a-f]{32}")


class Head(NamedTuple):
    """The newest token, and the last write.

    ``target`` is the name of the last write and of the object with its value; None: nothing was ever written.
    ``deleted``: that write removed the value, and there is no such object. ``previous`` is the write before. Each write
    has a unique name, so a writer whose reply was lost can find its write again, even after one of a newer holder.
    ``nonce`` makes each head, and so its ETag, different.
    """

    bearer: Bearer
    target: str | None
    deleted: bool
    previous: str | None
    nonce: str

    @classmethod
    def first(cls, incoming: Bearer) -> Head:
        """The head of a key that had none."""
        return cls(incoming, None, False, None, _nonce())

    def raised(self, incoming: Bearer) -> Head:
        """The same value, for a newer holder."""
        return self._replace(bearer=incoming, nonce=_nonce())

    def written(self, target: str, *, deleted: bool) -> Head:
        """The next write of the same holder."""
        return Head(self.bearer, target, deleted, self.target, _nonce())

    def names(self, target: str) -> bool:
        """Whether that write is the last one, or the one before."""
        return target in (self.target, self.previous)

    def follows(self, earlier: Head) -> bool:
        """Whether there was at most one write since ``earlier``, so that :meth:`names` knows of all of them."""
        return earlier.target in (self.target, self.previous)


def _nonce() -> str:
    return uuid.uuid4().hex


def encode(key: str, head: Head) -> bytes:
    record = {
        "format": _FORMAT,
        "key": key,
        "token": head.bearer.token,
        "owner": head.bearer.owner,
        "target": head.target,
        "deleted": head.deleted,
        "previous": head.previous,
        "nonce": head.nonce,
    }
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def decode(key: str, body: bytes) -> Head:
    """Decode what ``encode(key, …)`` wrote; ValueError for anything else."""
    if len(body) > LONGEST:
        raise ValueError("too long")
    try:
        record: dict[str, Any] = json.loads(body)
        seen = bearer(record["token"], record["owner"])
        head = Head(seen, record["target"], record["deleted"], record["previous"], record["nonce"])
        named = all(_DATA.fullmatch(name) for name in (record["target"], record["previous"]) if name is not None)
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError("not a head") from error
    if not named or not isinstance(record["deleted"], bool) or not isinstance(record["nonce"], str):
        raise ValueError("not a head")
    if encode(key, head) != body:
        raise ValueError("not a head, or not of this key")
    return head


def validate(key: str) -> str:
    """Return ``key`` if it can be the beginning of a path, else raise InvalidName."""
    names.validate(key, what="object key")
    if any(part in ("", ".", "..") for part in key.split("/")) or not key.isprintable():
        raise InvalidName(
            "an object key is a path of printable parts between single slashes, without '.' or '..'", name=key
        )
    return key


def head_path(key: str) -> str:
    return f"{key}/head"


def data_path(key: str, target: str) -> str:
    return f"{key}/{target}"


def new_target(token: int) -> str:
    """The name of a new data object. It contains the token, by which ``abandoned`` judges the object."""
    return f"{token:019d}-{uuid.uuid4().hex}"


def abandoned(name: str, head: Head) -> bool:
    """Whether the object ``name`` can never be the value again.

    The head only gets targets that were written under its own token. So an object with an older token that is not the
    present value was left by a writer that was refused or died. One with the same token may still become the value.
    """
    found = _DATA.fullmatch(name)
    return found is not None and int(found[1]) < head.bearer.token and name != head.target
