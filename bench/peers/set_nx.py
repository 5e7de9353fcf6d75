"""The usual recipe for a lock, on clients that have none of their own: SET NX PX, and a script that compares."""

from __future__ import annotations

from typing import Final

from bench.peers import TTL

OWNER: Final = "bench"
TTL_MS: Final = int(TTL * 1000)
RELEASE: Final = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""
