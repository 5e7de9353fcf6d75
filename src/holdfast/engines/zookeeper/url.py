"""URLs of ZooKeeper: the hosts of one ensemble, and the node under which the locks live.

As everywhere in these parsers, no error repeats a part of the URL that could be half a password.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from holdfast._core import parameters
from holdfast._core.url_parts import ENCODE, ParsedURL, Parts, servers, sort_query
from holdfast._core.zookeeper_target import REFUSED, RELATIVE, RESERVED, ZooKeeperTarget
from holdfast.errors import UsageError

#: Scheme → engine.
SCHEMES: Final = {"zookeeper": "zookeeper"}

_EXAMPLE: Final = "zookeeper://h1:2181,h2:2181,h3:2181/base"


def parse(parts: Parts) -> ParsedURL:
    """The target of a zookeeper:// URL, or UsageError with the remedy."""
    if "@" in parts.path or "@" in parts.query:
        # After an unescaped '/' or '?' in the user info, half a password would be the path and be shown.
        raise UsageError(f"an '@' after the hosts of the URL is written %40; {ENCODE}")
    named = servers(parts.netloc, 2181, _EXAMPLE)
    target = ZooKeeperTarget(tuple(server.address for server in named), _base(parts.path))
    own, query = sort_query(parts.query, parameters.ZOOKEEPER_URL | parameters.ZOOKEEPER_REFUSED.keys())
    given = {name: value for name, (value, _) in query.items()}
    for name, value in named[0].credentials.items():
        if name in given:
            raise UsageError(f"{name} is given twice in the URL: before the host and as a parameter; remove one")
        given[name] = value
    return ParsedURL("zookeeper", parts.scheme, target, own, given)


def _base(path: str) -> str:
    """The path, decoded, as ZooKeeper writes it; empty for the root."""
    written = path.removeprefix("/").removesuffix("/")
    if not written:
        return ""
    nodes = [unquote(node) for node in written.split("/")]  # what is not UTF-8 becomes U+FFFD, which is refused
    for position, node in enumerate(nodes, 1):
        if not node or node in RELATIVE or REFUSED.search(node):
            raise UsageError(
                f"node {position} of the URL's path is empty, relative, not UTF-8, or has a character that ZooKeeper "
                f"refuses, such as an encoded '/'; write {_EXAMPLE}"
            )
    if nodes[0] == RESERVED:
        raise UsageError(f"/{RESERVED} is ZooKeeper's own; choose another path for locks, as in {_EXAMPLE}")
    return "/" + "/".join(nodes)
