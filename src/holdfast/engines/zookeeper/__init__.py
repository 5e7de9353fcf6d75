"""Locks on ZooKeeper, in the dialect of Apache Curator."""

from holdfast.engines.zookeeper.engine import connect

__all__ = ["connect"]
