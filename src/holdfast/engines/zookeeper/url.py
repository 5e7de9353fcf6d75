"""URLs of ZooKeeper: the hosts of one ensemble, and the node under which the locks live. Pure: without kazoo.

No error repeats a part of the URL that could be half a password.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

from holdfast._config.url_parts import ENCODE, ParsedURL, Parts, servers, sort_query
from holdfast.engines.zookeeper import options
from holdfast.engines.zookeeper.options import option_names
from holdfast.engines.zookeeper.target import REFUSED, RELATIVE, RESERVED, ZooKeeperTarget
from holdfast.errors import UsageError

__all__ = ["detect_client", "option_names", "parse"]

_EXAMPLE: Final = "zookeeper://h1:2181,h2:2181,h3:2181/base"


def parse(engine: str, parts: Parts, keywords: Mapping[str, Any]) -> ParsedURL:
    """The target and options of a zookeeper:// URL, or UsageError with the remedy."""
    if "@" in parts.path or "@" in parts.query:
        # After an unescaped '/' or '?' in the user info, half a password would be the path and be shown.
        raise UsageError(f"an '@' after the hosts of the URL is written %40; {ENCODE}")
    named = servers(parts.netloc, 2181, _EXAMPLE)
    target = ZooKeeperTarget(tuple(server.address for server in named), _base(parts.path))
    own, query = sort_query(parts.query, options.URL_OPTIONS | options.REFUSED_OPTIONS.keys())
    given = {name: value for name, (value, _) in query.items()}
    for name, value in named[0].credentials.items():
        if name in given:
            raise UsageError(f"{name} is given twice in the URL: before the host and as a parameter; remove one")
        given[name] = value
    return ParsedURL(engine, target, own, given, options.beside_url(keywords, given))


def detect_client(client: object, keywords: Mapping[str, Any]) -> None:
    """UsageError with the remedy for a client of kazoo, recognised by the name of its class; None for other objects."""
    kind = type(client)
    if any(base.__name__ == "KazooClient" and base.__module__.partition(".")[0] == "kazoo" for base in kind.__mro__):
        # Its session may end, or go on, for reasons that holdfast does not know, and its timeout is not the ttl.
        raise UsageError(
            f"{kind.__module__}.{kind.__qualname__} cannot be shared: holdfast opens sessions of its own, with the "
            f"time-out ttl; give a URL such as zookeeper://h1:2181,h2:2181/base"
        )


def _base(path: str) -> str:
    """The path, decoded, as ZooKeeper writes it; empty for the root."""
    written = path.removeprefix("/").removesuffix("/")
    if not written:
        return ""
    nodes = [unquote(node) for node in written.split("/")]  # bytes that are not UTF-8 become U+FFFD, which is refused
    for position, node in enumerate(nodes, 1):
        if not node or node in RELATIVE or REFUSED.search(node):
            raise UsageError(
                f"node {position} of the URL's path is empty, relative, not UTF-8, or has a character that ZooKeeper "
                f"refuses, such as an encoded '/'; write {_EXAMPLE}"
            )
    if nodes[0] == RESERVED:
        raise UsageError(f"/{RESERVED} is ZooKeeper's own; choose another path for locks, as in {_EXAMPLE}")
    return "/" + "/".join(nodes)
