-- Look at a read-write lock.
--
-- KEYS     1 lock  2 fencing counter  3 facts about the holders  4 queue
-- ARGV     1 how many waiters to describe at most  2 what time-out keys of readers begin with
-- Returns  for each holder: field, count, PTTL of its hold, fact or nil; the fencing counter or nil; number of live
--          waiters; the server's time: seconds, microseconds; of the first live waiters: id, value, id, value …; the
--          lock's PTTL. A hash that is not a lock is refused.
--
-- Idempotent: writes nothing.

-- include owners waiters
local fields, problem = owners(KEYS[1])
if not fields then return problem end
local left, holders = redis.call('PTTL', KEYS[1]), {}
for i = 1, #fields, 2 do
    local field, lasts = fields[i], left
    if field ~= 'mode' then
        local owner = string.gsub(field, ':write$', '')
        if owner == field then
            lasts = redis.call('PTTL', ARGV[2] .. ':' .. field .. ':rwlock_timeout:' .. fields[i + 1])
        end
        holders[#holders + 1] = {field, fields[i + 1], lasts, redis.call('HGET', KEYS[3], owner)}
    end
end
local waiting, described = waiters(KEYS[4], tonumber(ARGV[1]))
local time = redis.call('TIME')
return {holders, redis.call('GET', KEYS[2]), waiting, time[1], time[2], described, left}
