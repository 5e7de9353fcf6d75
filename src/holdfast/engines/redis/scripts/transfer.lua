-- Give a held lock to another claim.
--
-- KEYS     1 lock  2 fencing counter  3 holder's metadata  4 what tombstones begin with
-- ARGV     1 owner  2 ttl ms  3 tokens to reserve  4 description of the holder (JSON)  5 ttl of the counter, ms (0: none)
--          6 owner that has it  7 ttl of its tombstone, ms
-- Returns  text: the last token of the new block. Number: 0 the lock is free; -1 another owner holds it, or the claim was
--          withdrawn, or the key is of another type.
--
-- Idempotent per claim: a repeat finds its own field, extends the lease and returns the stored token. The lease is never
-- shortened. No release is published: there is none. Late requests of the old owner find its tombstone.

-- include raise_counter take holds
local call, lock, owner, from, ttl = redis.call, KEYS[1], ARGV[1], ARGV[6], ARGV[2]
if call('EXISTS', KEYS[4] .. ':gone:' .. owner) == 1 then return -call('EXISTS', lock) end
local mine = holds(lock, owner)
local given = mine == -1 and holds(lock, from)
if mine ~= 1 and given ~= 1 then return given or mine end
if call('HLEN', lock) > 1 then return -1 end

local left = call('PTTL', lock)
if left > tonumber(ttl) then ttl = left end
if mine == 1 then
    local token, holder = string.match(call('GET', KEYS[3]) or '', '^(%d+) %d+ [%d.]+ (%S+) ')
    if holder == owner then
        call('PEXPIRE', lock, ttl)
        call('PEXPIRE', KEYS[3], ttl)
        return token
    end
    -- Ours, but its metadata is gone. No reply can have carried the token, so a new one is as good.
end
local token, time = raise_counter(KEYS[2], ARGV[3], ARGV[5], '0')
if not token then return time end
call('SET', KEYS[4] .. ':gone:' .. from, '1', 'PX', ARGV[7])
call('DEL', lock)
local about = token .. ' ' .. ARGV[3] .. ' ' .. time .. ' ' .. owner .. ' ' .. ARGV[4]
return take(lock, owner, ttl, KEYS[3], about) or token
