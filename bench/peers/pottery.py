"""pottery's Redlock. ``where``: the URLs of the masters, separated by spaces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis
from pottery import Redlock

from bench.peers import TTL, Pair


@contextmanager
def pair(kind: str, where: str, name: str) -> Iterator[Pair]:
    clients: set[Any] = {redis.Redis.from_url(url) for url in where.split()}
    lock = Redlock(key=name, masters=clients, auto_release_time=TTL)

    def once() -> None:
        lock.acquire()
        lock.release()

    try:
        yield once
    finally:
        for client in clients:
            client.close()
