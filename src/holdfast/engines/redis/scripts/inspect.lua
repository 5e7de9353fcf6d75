-- Look at a lock.
--
-- KEYS     1 lock  2 fencing counter  3 holder's metadata  4 queue
-- ARGV     1 how many waiters to describe at most  2 key of the queue of Redisson's fair lock
--          3 permits that are out (a semaphore's)  4 registers with waiters; with a part, the key of a register
--          5 what keys of the waiters present at a register begin with  6 part of a register that is not listed
-- Returns  fields and values of the lock; its PTTL; metadata or nil; counter or nil; number of live waiters;
--          the server's time: seconds, microseconds; of the first live waiters: id, value, id, value …;
--          the first waiters of Redisson's fair lock; 1: the name is a semaphore's; of each register with waiters: queue,
--          waiters present. A hash that is not a lock is refused.
--
-- Idempotent: writes nothing.

-- include owners waiters
local holders, problem = owners(KEYS[1])
if not holders then return problem end
local most = tonumber(ARGV[1])
local waiting, described = waiters(KEYS[4], most)
-- pcall: keys of another program, or of another kind. A user without the right to read them sees everything else.
local fair = redis.pcall('LRANGE', ARGV[2], 0, most - 1)
local semaphore = #holders == 0 and redis.pcall('EXISTS', ARGV[3]) == 1
local time = redis.call('TIME')
-- Commands for registers are used only if there are some: a user of locks may have no right to them.
local after, parts, queues = string.format('(%.0f', time[1] * 1000 + math.floor(time[2] / 1000)), {}, {}
if redis.pcall('EXISTS', ARGV[4]) == 1 then
    local listed = redis.pcall('ZRANGEBYSCORE', ARGV[4], after, '+inf', 'LIMIT', '0', ARGV[1])
    if not listed.err then parts = listed end
end
if redis.pcall('EXISTS', ARGV[4] .. ARGV[6]) == 1 then parts[#parts + 1] = ARGV[6] end
for _, part in ipairs(parts) do
    local queue = redis.pcall('HMGET', ARGV[4] .. part, 'queue')[1]
    if queue and queue ~= '' then
        local present = redis.pcall('ZRANGEBYSCORE', ARGV[5] .. part, after, '+inf')
        queues[#queues + 1] = queue
        queues[#queues + 1] = present.err and {} or present
    end
end
return {
    holders, redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[3]), redis.call('GET', KEYS[2]), waiting,
    time[1], time[2], described, fair.err and {} or fair,
    semaphore and 1 or 0, queues,
}
