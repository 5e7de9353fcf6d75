"""A lock's name as the name of one node, and back. Pure.

Letters, digits and most signs are unchanged, so that a Java program finds the lock ``orders`` at ``/base/orders``.
Characters that ZooKeeper refuses, and ``/`` and ``%``, are percent-encoded as UTF-8: a name is always one node, and
never a path inside another lock.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from holdfast.engines.zookeeper.target import REFUSED, RELATIVE, RESERVED
from holdfast.errors import InvalidName

_ENCODED: Final = re.compile(f"%|{REFUSED.pattern}")


def encode(name: str) -> str:
    """The node for ``name``; different names have different nodes."""
    if name in RELATIVE:
        return name.replace(".", "%2E")
    return _ENCODED.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), name)


def decode(node: str) -> str | None:
    """The name that encodes to ``node``; None for a node that no name encodes to, such as ``50%`` or ``%2f``."""
    if "%" not in node:
        return None if node in RELATIVE or REFUSED.search(node) else node
    try:
        name = unquote(node, errors="strict")
    except UnicodeDecodeError:
        return None
    return name if encode(name) == node else None


def path(base: str, name: str) -> str:
    """The full path of the lock's node. InvalidName for the one reserved name: ZooKeeper's own, at the root."""
    if not base and name == RESERVED:
        raise InvalidName(
            f"/{RESERVED} is ZooKeeper's own node; use namespace=, or a URL with a path such as zookeeper://host/locks",
            name=name,
        )
    return f"{base}/{encode(name)}"
