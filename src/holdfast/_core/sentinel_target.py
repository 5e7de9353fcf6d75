"""What the Sentinel engine is told to connect to. Pure: known without any driver."""

from __future__ import annotations

from typing import NamedTuple


class SentinelTarget(NamedTuple):
    """A master known by name, and the sentinels to ask where it is."""

    master: str
    #: Host (decoded, an IPv6 address without brackets) and port.
    sentinels: tuple[tuple[str, int], ...]
    #: How to connect to the master: user info, database and the driver's parameters. Its host and port are those of
    #: the first sentinel and only hold the place of what a sentinel will say.
    url: str

    def __repr__(self) -> str:  # the URL may hold a password
        return f"<master {self.master!r} of {', '.join(f'{host}:{port}' for host, port in self.sentinels)}>"
