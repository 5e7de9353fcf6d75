"""A fencing token, checked at the resource: holdfast, and a fence before every access."""

from __future__ import annotations

from collections.abc import Sequence

import holdfast
from holdfast.fencing import FileFence, Guard


class Lock:
    def __init__(self, addresses: Sequence[str], name: str, lease: float) -> None:
        self.client = holdfast.connect(addresses[0], ttl=lease)
        self.client.ping()
        self.lock = self.client.lock(name)

    def acquire(self) -> None:
        lease = self.lock.try_acquire()
        if lease is None:
            lease = self.lock.acquire()  # <- busy
        self.lease = lease  # <- taken
        return  # <- checked

    def guard(self, directory: str) -> Guard:
        """The resource accepts no access with an older token than it has seen."""
        return FileFence(directory).guard("register", self.lease)

    def release(self) -> None:
        self.lease.release()  # <- delete
