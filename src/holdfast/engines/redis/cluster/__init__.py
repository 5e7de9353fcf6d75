"""One Redis Cluster: each lock lives in one slot, and the slots move between servers."""

from holdfast.engines.redis.cluster.engine import connect

__all__ = ["connect"]
