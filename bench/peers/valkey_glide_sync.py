"""valkey-glide-sync: a client in Rust behind a sync interface. It has no lock; this is the usual recipe on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import glide_sync

from bench.peers import Pair
from bench.peers.set_nx import OWNER, RELEASE, TTL_MS


@contextmanager
def pair(kind: str, where: str, name: str) -> Iterator[Pair]:
    server = urlsplit(where)
    address = glide_sync.NodeAddress(server.hostname or "127.0.0.1", server.port or 6379)
    client: Any = glide_sync.GlideClient.create(glide_sync.GlideClientConfiguration([address], request_timeout=10_000))
    script: Any = glide_sync.Script(RELEASE)
    expiry = glide_sync.ExpirySet(glide_sync.ExpiryType.MILLSEC, TTL_MS)
    free = glide_sync.ConditionalChange.ONLY_IF_DOES_NOT_EXIST

    def once() -> None:
        if client.set(name, OWNER, conditional_set=free, expiry=expiry) is None:
            raise RuntimeError(f"{name} is not free")
        client.invoke_script(script, keys=[name], args=[OWNER])

    try:
        yield once
    finally:
        client.close()
