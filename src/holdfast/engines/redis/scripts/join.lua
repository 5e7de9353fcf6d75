-- Add leases to this server that a majority of the others has just confirmed: it was unreachable when they were
-- granted, or has lost its data. Without this, restarting one server after the other would end every long lease.
--
-- KEYS     for each claim: lock, fencing counter, holder's metadata, what tombstones begin with
-- ARGV     1 ttl ms  2 ttl of the counters, ms (0: none)  3… for each claim: owner, token, tokens, description
-- Returns  for each claim: 1 it holds the lock here now; 0 another owner does, or the claim was withdrawn.
--
-- Idempotent. Never takes a lock from its holder, never brings back a claim that was released: that left a tombstone.

-- include raise_to take
local call, joined = redis.call, {}
local time = call('TIME')
local since = time[1] .. '.' .. string.sub('00000' .. time[2], -6)
for i = 1, #KEYS / 4 do
    local lock, counter, metadata = KEYS[4 * i - 3], KEYS[4 * i - 2], KEYS[4 * i - 1]
    local owner, token, tokens, description = ARGV[4 * i - 1], ARGV[4 * i], ARGV[4 * i + 1], ARGV[4 * i + 2]
    joined[i] = 0
    if call('EXISTS', lock, KEYS[4 * i] .. ':gone:' .. owner) == 0 then
        raise_to(counter, token, ARGV[2])
        local about = token .. ' ' .. tokens .. ' ' .. since .. ' ' .. owner .. ' ' .. description
        local problem = take(lock, owner, ARGV[1], metadata, about)
        if problem then return problem end
        joined[i] = 1
    elseif redis.pcall('HEXISTS', lock, owner) == 1 then
        joined[i] = 1
    end
end
return joined
