"""Which engine an existing client of redis-py means, by the names of its classes: redis-py is not imported for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.engines.redis import options
from holdfast.errors import UsageError


def detect_client(client: Any, keywords: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """The engine for a sync or async client of redis-py, and its options; None for any other object.

    UsageError with the remedy for a client that cannot be used, and for options that belong to the client.
    """
    engine = _engine_of(client)
    return None if engine is None else (engine, options.beside_client(engine, keywords))


def _engine_of(client: Any) -> str | None:
    kind = type(client)
    packages = {base.__module__.partition(".")[0] for base in kind.__mro__}
    if "fakeredis" in packages:
        # It is a redis.Redis to Python; connections with its settings would be made to a real localhost.
        shown = f"{kind.__module__}.{kind.__qualname__}"
        raise UsageError(f"{shown} has no server behind it; for tests use holdfast.connect('memory:')")
    if _descends(kind, "RedisCluster"):
        return "cluster"
    pool = getattr(client, "connection_pool", None)
    if "redis" not in packages or pool is None:
        return None
    if not _descends(type(pool), "SentinelConnectionPool"):
        return "redis"
    if not pool.is_master:
        raise UsageError("the client reads from replicas, and only the master grants locks; give Sentinel.master_for()")
    return "sentinel"


def _descends(kind: type, name: str) -> bool:
    """Whether ``kind`` is redis-py's class ``name`` or derived from it."""
    return any(base.__name__ == name and base.__module__.partition(".")[0] == "redis" for base in kind.__mro__)
