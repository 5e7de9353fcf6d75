-- Look at a lock. Writes nothing.
--
-- KEYS     1 lock  2 fencing counter  3 holder's metadata  4 queue
-- Returns  fields and values of the lock; its PTTL; metadata or nil; counter or nil; number of live waiters;
--          the server's time: seconds, microseconds. What is not a lock is refused.
local holders, problem = owners(KEYS[1])
if not holders then return problem end
local waiting = 0
-- Bounded: what is shown to people must not cost the server more than a moment.
for _, waiter in ipairs(redis.call('LRANGE', KEYS[4], 0, 9999)) do
    waiting = waiting + redis.call('EXISTS', KEYS[4] .. ':' .. waiter)
end
local time = redis.call('TIME')
return {
    holders, redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[3]), redis.call('GET', KEYS[2]), waiting,
    time[1], time[2],
}
