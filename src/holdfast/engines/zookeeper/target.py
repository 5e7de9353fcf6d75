"""The target of the ZooKeeper engine, and which names of nodes ZooKeeper allows. Pure: without kazoo."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

#: Characters that ZooKeeper refuses in the name of a node: control characters, surrogates (so everything above U+FFFF,
#: which to Java is two of them) and the private use area after them, and the end of the basic plane. '/' separates.
REFUSED: Final = re.compile("[\0-\x1f/\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")

#: They mean a relative place, not a node.
RELATIVE: Final = frozenset({".", ".."})

#: The node at the root in which ZooKeeper keeps its own settings and quotas.
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
