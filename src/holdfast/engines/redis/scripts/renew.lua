-- Extend the leases of many claims.
--
-- KEYS     for each claim: lock, holder's metadata, fencing counter
-- ARGV     1 ttl ms  2 ttl of the counters, ms (0: leave them)  3 '1': write in any case  4… owner of each claim
-- Returns  for each claim: 1 extended; 0 the lock is free; -1 another owner holds it, or the key is of another type;
--          -2 it was ours, and another program's, which has it now: see holds.lua.
--
-- "In any case": replicas acknowledge writes. Without a write here, WAIT would ask about an older one, which a replica
-- that is cut off since may have acknowledged.
-- Idempotent. Never shortens, never creates: for a claim that does not hold its lock nothing is written.
-- The counter's ttl begins anew once a thirtieth of it has passed, as for grants: not with each renewal.

-- include holds
local ttl, keep = tonumber(ARGV[1]), tonumber(ARGV[2])
local aged = keep * 29 / 30
local found = {}
for i = 1, #ARGV - 3 do
    local lock, metadata, counter = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
    local held = holds_alone(lock, ARGV[i + 3])
    if held == 1 then
        local left = redis.call('PTTL', lock)
        if left < ttl then
            redis.call('PEXPIRE', lock, ARGV[1])
            redis.call('PEXPIRE', metadata, ARGV[1])
        elseif ARGV[3] == '1' then
            redis.call('PEXPIRE', lock, left)
        end
        if keep > 0 then
            local left = redis.call('PTTL', counter)
            if left >= 0 and left < aged then redis.call('PEXPIRE', counter, ARGV[2]) end
        end
    elseif type(held) == 'table' then
        return held
    end
    found[i] = held
end
return found
