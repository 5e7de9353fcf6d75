"""A session: the lock is an ephemeral node of ZooKeeper, and ends with its holder's session."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError, SessionExpiredError


class Lock:
    def __init__(self, addresses: Sequence[str], name: str, lease: float) -> None:
        self.zookeeper = KazooClient(",".join(addresses), timeout=lease)
        self.zookeeper.start()
        self.path = f"/{name}"
        self.zookeeper.ensure_path(self.path)

    def acquire(self) -> None:
        self.node: str = self.zookeeper.create(f"{self.path}/", ephemeral=True, sequence=True)
        own = self.node.rpartition("/")[2]  # <- taken
        while True:
            queue = sorted(self.zookeeper.get_children(self.path))
            place = queue.index(own)
            if place == 0:
                return  # <- checked
            gone = threading.Event()
            if self.zookeeper.exists(f"{self.path}/{queue[place - 1]}", lambda event, gone=gone: gone.set()):
                gone.wait()  # <- busy

    def release(self) -> None:
        try:
            self.zookeeper.retry(self.zookeeper.delete, self.node)  # <- delete
        except (NoNodeError, SessionExpiredError):
            pass  # the session ended, and its node with it
