"""RedisFence: one script checks the token and changes the data.

The guard is a key of its own beside the data, in the same hash slot; ``fence.lua`` compares, raises it and runs the
command in one step, so no other client can come in between.

* ``fence.lua``: the rule as the server runs it. Read this first.
* ``keys.py``: where the guard of a resource is.
* ``operation.py``: what is sent, and what an answer means. No I/O.
* ``fence.py``: ``RedisFence`` and ``AsyncRedisFence``, on the program's own redis-py client.
"""

from __future__ import annotations

from holdfast.fencing.redis.fence import AsyncRedisFence, RedisFence

__all__ = ["AsyncRedisFence", "RedisFence"]
