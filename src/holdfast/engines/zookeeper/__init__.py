"""Locks on ZooKeeper, in the dialect of Apache Curator."""
