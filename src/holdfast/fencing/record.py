"""What FileFence stores for one resource: one line of JSON, in a canonical form."""

from __future__ import annotations

import json
from typing import Final

from holdfast.fencing.rule import Bearer, bearer

_FORMAT: Final = "holdfast fence 1"
#: Longer than any record: resource and owner have at most 512 bytes each, of which JSON may expand each to six.
LONGEST: Final = 8192


def encode(resource: str, seen: Bearer) -> bytes:
    record = {"format": _FORMAT, "resource": resource, "token": seen.token, "owner": seen.owner}
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def decode(resource: str, content: bytes) -> Bearer:
    """Decode what ``encode(resource, …)`` wrote; ValueError for anything else.

    A truncated record must not be read as a smaller token, so the parsed record must encode to the same bytes.
    """
    try:
        record = json.loads(content)
        seen = bearer(record["token"], record["owner"])
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError("not a record of a fence") from error
    if encode(resource, seen) != content:
        raise ValueError("not a record of this fence, or not of this resource")
    return seen
