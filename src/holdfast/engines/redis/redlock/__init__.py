"""Redlock with fencing tokens: one lock on a majority of independent masters."""

from holdfast.engines.redis.redlock.engine import connect

__all__ = ["connect"]
