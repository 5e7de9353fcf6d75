"""RedisFence: one script checks the token and changes the data.

The guard is a separate key in the same hash slot as the data. ``fence.lua`` compares the token, raises the guard and
runs the command in one step, so no other client can interfere.

* ``fence.lua``: the rule as the server runs it. Read this first.
* ``keys.py``: the key of a resource's guard.
* ``operation.py``: the arguments of the script, and the meaning of its reply. No I/O.
* ``fence.py``: ``RedisFence`` and ``AsyncRedisFence``, on the program's own redis-py client.
"""

from __future__ import annotations

from holdfast.fencing.redis.fence import AsyncRedisFence, RedisFence

__all__ = ["AsyncRedisFence", "RedisFence"]
