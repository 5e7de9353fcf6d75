-- Look at a lock.
--
-- KEYS     1 lock  2 fencing counter  3 holder's metadata  4 queue
-- ARGV     1 how many waiters to describe at most  2 key of the queue of Redisson's fair lock
-- Returns  fields and values of the lock; its PTTL; metadata or nil; counter or nil; number of live waiters;
--          the server's time: seconds, microseconds; of the first live waiters: id, value, id, value …;
--          the first waiters of Redisson's fair lock. A hash that is not a lock is refused.
--
-- Idempotent: writes nothing.
local holders, problem = owners(KEYS[1])
if not holders then return problem end
local waiting, described, most = 0, {}, tonumber(ARGV[1])
-- Bounded: inspecting must not block the server.
for _, waiter in ipairs(redis.call('LRANGE', KEYS[4], 0, 9999)) do
    if waiting >= most then
        waiting = waiting + redis.call('EXISTS', KEYS[4] .. ':' .. waiter)
    else
        local value = redis.call('GET', KEYS[4] .. ':' .. waiter)
        if value then
            waiting = waiting + 1
            described[#described + 1] = waiter
            described[#described + 1] = value
        end
    end
end
-- pcall: another program's key. A user without the right to read it still sees everything else.
local fair = redis.pcall('LRANGE', ARGV[2], 0, most - 1)
local time = redis.call('TIME')
return {
    holders, redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[3]), redis.call('GET', KEYS[2]), waiting,
    time[1], time[2], described, fair.err and {} or fair,
}
