"""A drop-in for redis-py's ``Lock``: one changed import, and the program keeps its calls.

========================================  =====================================================
before                                    after
========================================  =====================================================
``from redis.lock import Lock``           ``from holdfast.compat.redis_py import Lock``
``from redis.asyncio.lock import Lock``   ``from holdfast.compat.redis_py.asyncio import Lock``
``from redis import Redis``               ``from holdfast.compat.redis_py import Redis``
``client.lock(name)``                     ``client.lock(name, lock_class=Lock)``
========================================  =====================================================

``Redis`` and ``RedisCluster`` are redis-py's own, except that ``client.lock()`` makes these locks.

Read ``base.py`` first.

* ``base.py``: what the two locks share
* ``blocking.py``, ``asyncio.py``: the sync and the asyncio lock
* ``leases.py``: which lease a ``release()`` refers to
* ``outliving.py``: locks that are kept until their timeout
* ``errors.py``: holdfast's errors as redis-py's exceptions
* ``clients.py``, ``closing.py``: the holdfast client behind a redis client
"""

from __future__ import annotations

from holdfast.compat.redis_py.blocking import Lock, Redis, RedisCluster

__all__ = ["Lock", "Redis", "RedisCluster"]
