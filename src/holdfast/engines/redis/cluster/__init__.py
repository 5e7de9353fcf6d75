"""One Redis Cluster: each lock lives in one slot, and slots are moved between servers.

* ``channel.py``: a cluster as one channel, which follows redirections. Read this first.
* ``keeper_channel.py``: the same for the watchdog; ``batches.py``: its calls, sorted by server.
* ``engine.py``, ``session.py``, ``keeper.py``: the port; what differs from one server.
* ``slots.py``: which server has which slot; ``node.py``: what the parts see of the servers.
* ``watch.py``: how a waiter is woken, also when its slot moves.
* ``unresponsive.py``: servers that the watchdog skips; ``untracked.py``: locks whose loss is not pushed.
"""

from holdfast.engines.redis.cluster.engine import connect

__all__ = ["connect"]
