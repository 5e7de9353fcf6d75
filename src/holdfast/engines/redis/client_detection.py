"""Which engine an existing client of a driver means, told by the names of its classes: no driver is imported for it."""

from __future__ import annotations

from typing import Literal

from holdfast.errors import UsageError


def engine_of(client: object) -> Literal["redis", "sentinel", "cluster"]:
    """The engine for a client of redis-py, of either colour; UsageError with the remedy for any other object."""
    kind = type(client)
    shown = f"{kind.__module__}.{kind.__qualname__}"
    packages = {base.__module__.partition(".")[0] for base in kind.__mro__}
    if "fakeredis" in packages:
        # It is a redis.Redis to Python; our own connections from its settings would go to a real localhost.
        raise UsageError(f"{shown} has no server behind it; for tests use holdfast.connect('memory:')")
    if _descends(kind, "RedisCluster"):
        return "cluster"
    pool = getattr(client, "connection_pool", None)
    if "redis" not in packages or pool is None:
        raise UsageError(f"{shown} is neither a URL nor a client of redis-py; give a URL such as redis://host:6379/0")
    if not _descends(type(pool), "SentinelConnectionPool"):
        return "redis"
    if not pool.is_master:
        raise UsageError("the client reads from replicas, and only the master grants locks; give Sentinel.master_for()")
    return "sentinel"


def _descends(kind: type, name: str) -> bool:
    """Whether ``kind`` is redis-py's class ``name`` or derived from it."""
    return any(base.__name__ == name and base.__module__.partition(".")[0] == "redis" for base in kind.__mro__)
