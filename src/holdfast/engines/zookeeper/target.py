"""What the ZooKeeper engine is told to connect to, and what ZooKeeper allows in a path. Pure: without any driver."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from holdfast.errors import UsageError

#: Characters that ZooKeeper refuses in the name of a node: control characters, surrogates (so everything above U+FFFF,
#: which to Java is two of them) and the private use area after them, and the end of the basic plane. '/' separates.
REFUSED: Final = re.compile("[\0-\x1f/\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")

#: They would mean a place, not a node.
RELATIVE: Final = frozenset({".", ".."})

#: The node at the root where ZooKeeper keeps its own settings and quotas.
RESERVED: Final = "zookeeper"


class ZooKeeperTarget(NamedTuple):
    """An ensemble, and the node under which the locks live."""

    #: Host (decoded, an IPv6 address without brackets) and port.
    hosts: tuple[tuple[str, int], ...]
    #: Empty for the root, else as in ``/a/b``.
    base: str = ""

    @property
    def connection_string(self) -> str:
        """The hosts as kazoo and ZooKeeper's own clients take them, without the base."""
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)

    def __repr__(self) -> str:
        return f"<ZooKeeper at {self.connection_string}{self.base}>"


def refuse_client(client: object) -> None:
    """UsageError with the remedy for a client of kazoo, told by the name of its class; no driver is imported for it."""
    kind = type(client)
    if any(base.__name__ == "KazooClient" and base.__module__.partition(".")[0] == "kazoo" for base in kind.__mro__):
        # Its session may end, or live on, for reasons that are not ours; and its time-out is not our ttl.
        raise UsageError(
            f"{kind.__module__}.{kind.__qualname__} cannot be shared: holdfast opens sessions of its own, with the "
            "time-out ttl; give a URL such as zookeeper://h1:2181,h2:2181/base"
        )
