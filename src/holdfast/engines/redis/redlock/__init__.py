"""Redlock with fencing tokens: one lock on a majority of independent masters.

* ``session.py``: for a client's callers: acquire in two phases, release, inspect. Read this first.
* ``quorum.py``: what the answers of several servers mean together. Pure.
* ``keeper.py``: for a client's watchdog; ``leases.py``: what both have in common.
* ``servers.py``, ``keeper_servers.py``: which servers are asked, and the error when there is no majority.
* ``health.py``: which servers are worth asking. Pure.
* ``proposal.py``: the token that all servers are given, from their clocks; ``clocks.py``: reading them.
* ``contender.py``: waiting in the queue of one server. ``engine.py``: settings, guarantees, ``connect``.
"""

from holdfast.engines.redis.redlock.engine import connect

__all__ = ["connect"]
