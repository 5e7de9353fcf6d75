-- Look at a lock.
--
-- KEYS     1 lock  2 fencing counter  3 holder's metadata  4 queue
-- ARGV     1 how many waiters to describe at most  2 key of the queue of Redisson's fair lock
--          3 permits that are out (a semaphore's)
-- Returns  fields and values of the lock; its PTTL; metadata or nil; counter or nil; number of live waiters;
--          the server's time: seconds, microseconds; of the first live waiters: id, value, id, value …;
--          the first waiters of Redisson's fair lock; 1: the name is a semaphore's. A hash that is not a lock is
--          refused.
--
-- Idempotent: writes nothing.
local holders, problem = owners(KEYS[1])
if not holders then return problem end
local most = tonumber(ARGV[1])
local waiting, described = waiters(KEYS[4], most)
-- pcall: keys of another program, or of another kind. A user without the right to read them sees everything else.
local fair = redis.pcall('LRANGE', ARGV[2], 0, most - 1)
local semaphore = #holders == 0 and redis.pcall('EXISTS', ARGV[3]) == 1
local time = redis.call('TIME')
return {
    holders, redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[3]), redis.call('GET', KEYS[2]), waiting,
    time[1], time[2], described, fair.err and {} or fair,
    semaphore and 1 or 0,
}
