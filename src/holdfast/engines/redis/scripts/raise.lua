-- Second phase of an acquire on several servers: raise this server's number to the one that was agreed on.
--
-- KEYS     1 lock  2 fencing counter  3 holder's metadata
-- ARGV     1 owner  2 token  3 ttl of the counter, ms (0: none)
-- Returns  1 if this claim still holds the lock here, and the counter is at least the token; 0 if it does not.
--
-- Idempotent. Keeps the ttls that are there, so it neither extends nor shortens a lease.

-- include raise_to
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
raise_to(KEYS[2], ARGV[2], ARGV[3])
local metadata = redis.call('GET', KEYS[3])
if metadata then redis.call('SET', KEYS[3], (string.gsub(metadata, '^%d+', ARGV[2])), 'KEEPTTL') end
return 1
