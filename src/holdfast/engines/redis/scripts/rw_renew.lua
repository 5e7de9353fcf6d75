-- Extend the leases of many claims on read-write locks.
--
-- KEYS     for each claim: lock, time-out key of the reader (of a writer: the lock again), facts about the holders,
--          fencing counter
-- ARGV     1 ttl ms  2 ttl of the counters, ms (0: leave them)  3 '1': write in any case
--          4… field of each claim: owner, or owner:write
-- Returns  for each claim: 1 extended; 0 it does not hold the lock; -1 another owner's hold excludes it.
--
-- "In any case", and the counter's ttl: see renew.lua.
-- Idempotent. Never shortens. Never brings back a hold: but of a reader that has one, a time-out key that was lost
-- (evicted, deleted) is made anew, since without it other clients' releases would overlook the reader.

-- include holds
local ttl, keep = tonumber(ARGV[1]), tonumber(ARGV[2])
local aged = keep * 29 / 30
local found = {}
for i = 1, #ARGV - 3 do
    local lock, mine, facts, counter = KEYS[4 * i - 3], KEYS[4 * i - 2], KEYS[4 * i - 1], KEYS[4 * i]
    local field = ARGV[i + 3]
    local held = holds(lock, field)
    if held == 1 then
        local left = redis.call('PTTL', lock)
        if left < ttl then
            redis.call('PEXPIRE', lock, ARGV[1])
            redis.call('PEXPIRE', facts, ARGV[1])
        elseif ARGV[3] == '1' then
            redis.call('PEXPIRE', lock, left)
        end
        if mine ~= lock and redis.call('PTTL', mine) < ttl then redis.call('SET', mine, '1', 'PX', ARGV[1]) end
        if keep > 0 then
            left = redis.call('PTTL', counter)
            if left >= 0 and left < aged then redis.call('PEXPIRE', counter, ARGV[2]) end
        end
    elseif type(held) == 'table' then
        return held
    elseif held == -1 and not string.find(field, ':write$') and redis.pcall('HGET', lock, 'mode') == 'read' then
        held = 0
    end
    found[i] = held
end
return found
