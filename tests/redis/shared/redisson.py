"""Redisson's read-write lock and expirable semaphore: the steps of its scripts, in our own words, for mixed runs.

Written from its documented layout: the order of steps is Redisson's, the text is not.
"""

from __future__ import annotations

import secrets
import uuid
from typing import Any, Final

from tests.servers.redis import RedisServer

_READ: Final = """
local mode = redis.call('HGET', KEYS[1], 'mode')
if not mode then
    redis.call('HSET', KEYS[1], 'mode', 'read')
    redis.call('HSET', KEYS[1], ARGV[2], 1)
    redis.call('SET', KEYS[2] .. ':1', 1)
    redis.call('PEXPIRE', KEYS[2] .. ':1', ARGV[1])
    redis.call('PEXPIRE', KEYS[1], ARGV[1])
    return nil
end
if mode == 'read' or (mode == 'write' and redis.call('HEXISTS', KEYS[1], ARGV[3]) == 1) then
    local key = KEYS[2] .. ':' .. redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
    redis.call('SET', key, 1)
    redis.call('PEXPIRE', key, ARGV[1])
    redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), ARGV[1]))
    return nil
end
return redis.call('PTTL', KEYS[1])
"""

_READ_UNLOCK: Final = """
local mode = redis.call('HGET', KEYS[1], 'mode')
if not mode then
    redis.call('PUBLISH', KEYS[2], '0')
    return nil
end
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return nil end
local count = redis.call('HINCRBY', KEYS[1], ARGV[1], -1)
if count == 0 then redis.call('HDEL', KEYS[1], ARGV[1]) end
redis.call('DEL', KEYS[3] .. ':' .. (count + 1))
if redis.call('HLEN', KEYS[1]) > 1 then
    local longest = -3
    for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
        local holds = tonumber(redis.call('HGET', KEYS[1], field))
        if holds then
            for i = holds, 1, -1 do
                local left = redis.call('PTTL', KEYS[4] .. ':' .. field .. ':rwlock_timeout:' .. i)
                longest = math.max(left, longest)
            end
        end
    end
    if longest > 0 then
        redis.call('PEXPIRE', KEYS[1], longest)
        return 0
    end
    if mode == 'write' then return 0 end
end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', KEYS[2], '0')
return 1
"""

_WRITE: Final = """
local mode = redis.call('HGET', KEYS[1], 'mode')
if not mode then
    redis.call('HSET', KEYS[1], 'mode', 'write')
    redis.call('HSET', KEYS[1], ARGV[2], 1)
    redis.call('PEXPIRE', KEYS[1], ARGV[1])
    return nil
end
if mode == 'write' and redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
    redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
    redis.call('PEXPIRE', KEYS[1], redis.call('PTTL', KEYS[1]) + ARGV[1])
    return nil
end
return redis.call('PTTL', KEYS[1])
"""

_WRITE_UNLOCK: Final = """
local mode = redis.call('HGET', KEYS[1], 'mode')
if not mode then
    redis.call('PUBLISH', KEYS[2], '1')
    return nil
end
if mode ~= 'write' or redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return nil end
if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) > 0 then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return 0
end
redis.call('HDEL', KEYS[1], ARGV[1])
if redis.call('HLEN', KEYS[1]) == 1 then
    redis.call('DEL', KEYS[1])
    redis.call('PUBLISH', KEYS[2], '1')
else
    redis.call('HSET', KEYS[1], 'mode', 'read')
end
return 1
"""

_RECLAIM: Final = """
local expired = redis.call('ZRANGEBYSCORE', KEYS[2], 0, ARGV[2])
if #expired > 0 then
    redis.call('ZREM', KEYS[2], unpack(expired))
    local free = redis.call('INCRBY', KEYS[1], #expired)
    if free > 0 then redis.call('PUBLISH', KEYS[3], free) end
end
"""

_TAKE_PERMIT: Final = (
    _RECLAIM
    + """
local free = redis.call('GET', KEYS[1])
if free and tonumber(free) >= 1 then
    redis.call('DECRBY', KEYS[1], 1)
    redis.call('ZADD', KEYS[2], ARGV[1], ARGV[3])
    local left = redis.call('PTTL', KEYS[1])
    if left > 0 then redis.call('PEXPIRE', KEYS[2], left) end
    return 1
end
return 0
"""
)

_RETURN_PERMIT: Final = """
local expires = redis.call('ZSCORE', KEYS[2], ARGV[1])
if redis.call('ZREM', KEYS[2], ARGV[1]) == 0 then return 0 end
local free = redis.call('INCRBY', KEYS[1], 1)
redis.call('PUBLISH', KEYS[3], free)
return tonumber(expires) <= tonumber(ARGV[2]) and 0 or 1
"""


class Java:
    """One thread of a Redisson client. ``fast``: how many ms its clock is ahead."""

    def __init__(self, server: RedisServer, name: str, fast: int = 0) -> None:
        self._redis: Any = server.client()
        self._name = name
        self._fast = fast
        self.owner = f"{uuid.uuid4()}:{secrets.randbits(16)}"
        self._timeouts = f"{{{name}}}:{self.owner}:rwlock_timeout"
        self._channel = f"redisson_rwlock:{{{name}}}"
        self._permits = (name, f"{{{name}}}:timeout", f"redisson_sc:{{{name}}}")

    def _run(self, script: str, keys: tuple[str, ...], *args: object) -> Any:
        return self._redis.eval(script, len(keys), *keys, *args)

    def _now(self) -> int:
        seconds, micros = self._redis.time()
        return int(seconds) * 1000 + int(micros) // 1000 + self._fast

    def read(self, lease: int = 30_000) -> bool:
        return self._run(_READ, (self._name, self._timeouts), lease, self.owner, f"{self.owner}:write") is None

    def read_unlock(self) -> Any:
        prefix = f"{{{self._name}}}"
        return self._run(_READ_UNLOCK, (self._name, self._channel, self._timeouts, prefix), self.owner)

    def write(self, lease: int = 30_000) -> bool:
        return self._run(_WRITE, (self._name,), lease, f"{self.owner}:write") is None

    def write_unlock(self) -> Any:
        return self._run(_WRITE_UNLOCK, (self._name, self._channel), f"{self.owner}:write", 30_000)

    def take_permit(self, lease: int = 30_000) -> bytes | None:
        permit = secrets.token_bytes(16)
        now = self._now()
        return permit if self._run(_TAKE_PERMIT, self._permits, now + lease, now, permit) == 1 else None

    def return_permit(self, permit: bytes) -> bool:
        return self._run(_RETURN_PERMIT, self._permits, permit, self._now()) == 1  # type: ignore[no-any-return]
