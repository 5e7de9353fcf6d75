"""One master behind Redis Sentinel: found anew with each connection, so that a failover is followed.

* ``engine.py``: the engine of ``redis+sentinel://``, its guarantees and ``connect``. Read this first.
* ``discovery.py``: which server is the master now: the sentinels are asked, and the server is verified.
"""

from holdfast.engines.redis.sentinel.engine import SentinelEngine, connect

__all__ = ["SentinelEngine", "connect"]
