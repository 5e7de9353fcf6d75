-- Extend the time-out key of one reader. Names one key: so it can be sent while the lock's slot is being moved.
--
-- KEYS     1 time-out key
-- ARGV     1 ttl ms
-- Returns  one answer, as rw_renew.lua does: 1.
--
-- Idempotent. Never shortens. Sent only after the lock itself was found to be held.
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], '1', 'PX', ARGV[1]) end
return {1}
