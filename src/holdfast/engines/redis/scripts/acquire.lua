-- Take the lock for one claim, if it is free.
--
-- KEYS     1 lock (hash, owner -> count)  2 fencing counter  3 holder's metadata  4 queue (list of waiters)
--          5 what tombstones begin with  [6 key of this claim's waiter]
-- ARGV     1 owner  2 ttl ms  3 tokens to reserve  4 description of the holder (JSON)  5 ttl of the counter, ms (0: none)
--          6 '1': do not overtake live waiters  7 proposal for the counter ('0': the server's time)  [8 waiter
--          9 its first entry in the queue, see turn.lua]
-- Returns  text: granted, the last token of the block. Number: busy, the lock's PTTL (-1: it has none; -2: the lock is
--          free, but not for this claim), or for how long another program's waiters go first.
--
-- Idempotent per claim: a repeat that finds its own field extends the lease, never shortens it, and returns the token
-- that was stored for this grant. A late duplicate of a claim that was released or withdrawn finds its tombstone.
-- Keys made here (tombstone, waiters) begin with one of KEYS and have its hash tag, so they are in its slot.

-- include take
local call, lock, owner, ttl = redis.call, KEYS[1], ARGV[1], ARGV[2]
local tombstone, yields = KEYS[5] .. ':gone:' .. owner, KEYS[5] .. ':yield'

local function leave_queue()
    if KEYS[6] then
        call('DEL', KEYS[6])
        call('LREM', KEYS[4], '0', ARGV[8])
        if ARGV[9] then call('LREM', KEYS[4], '0', ARGV[9]) end
    end
end

-- One command for all of them: nearly always there is none, or the lock alone.
local found = call('EXISTS', lock, tombstone, yields)
if found ~= 0 then
    local left = call('PTTL', lock)
    if left == -2 or found > 1 then
        if call('EXISTS', tombstone) == 1 then return left end
        if left == -2 then return call('PTTL', yields) end  -- another program's turn: see yield.lua
    end
    -- The first command that fails on a key of another type (WRONGTYPE): nothing is written by then.
    if call('HEXISTS', lock, owner) == 0 then
        if call('HEXISTS', lock, 'mode') == 1 then return redis.error_reply('HOLDFAST KIND rwlock') end
        return left
    end
    if left > tonumber(ttl) then ttl = left end
    local token, holder = string.match(call('GET', KEYS[3]) or '', '^(%d+) %d+ [%d.]+ (%S+) ')
    if holder == owner then
        leave_queue()
        call('PEXPIRE', lock, ttl)
        call('PEXPIRE', KEYS[3], ttl)
        return token
    end
    -- Ours, but its metadata is gone. No reply can have carried the token, so a new one is as good.
elseif ARGV[6] == '1' then
    -- include turn
    if not is_next(KEYS[4], ARGV[8]) then return -2 end
end

local token, time
if ARGV[7] == '0' then
    -- include next_token
    token, time = next_token(KEYS[2], ARGV[3], ARGV[5])
else
    -- include raise_counter
    token, time = raise_counter(KEYS[2], ARGV[3], ARGV[5], ARGV[7])
end
if not token then return time end
leave_queue()
local about = token .. ' ' .. ARGV[3] .. ' ' .. time .. ' ' .. owner .. ' ' .. ARGV[4]
return take(lock, owner, ttl, KEYS[3], about) or token
