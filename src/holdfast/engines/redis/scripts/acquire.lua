-- Take the lock for one claim, if it is free.
--
-- KEYS     1 lock (hash, owner -> count)  2 fencing counter  3 holder's metadata  4 queue (list of waiters)
--          5 what tombstones begin with  [6 key of this claim's waiter]
-- ARGV     1 owner  2 ttl ms  3 tokens to reserve  4 description of the holder (JSON)  5 ttl of the counter, ms (0: none)
--          6 '1': do not overtake live waiters  [7 waiter]
-- Returns  text: granted, the last token of the block. Number: busy, the lock's PTTL (-1: it has none; -2: the lock is
--          free, but not for this claim).
--
-- Idempotent per claim: a repeat that finds its own field extends the lease, never shortens it, and is given the token
-- that was stored for this very grant. A late duplicate of a claim that was released or withdrawn meets its tombstone.
-- Keys made here (tombstone, waiters) begin with one of KEYS and have its hash tag, so they are in its slot.
local pttl = redis.call('PTTL', KEYS[1])
if redis.call('EXISTS', KEYS[5] .. ':gone:' .. ARGV[1]) == 1 then return pttl end

local function leave_queue()
    if KEYS[6] then
        redis.call('DEL', KEYS[6])
        redis.call('LREM', KEYS[4], 1, ARGV[7])
    end
end

local ttl = ARGV[2]
if pttl ~= -2 then
    -- The first command that fails on a key of another type (WRONGTYPE): nothing is written by then.
    if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return pttl end
    if pttl > tonumber(ttl) then ttl = pttl end
    local token, owner = string.match(redis.call('GET', KEYS[3]) or '', '^(%d+) %d+ [%d.]+ (%S+) ')
    if owner == ARGV[1] then
        leave_queue()
        redis.call('PEXPIRE', KEYS[1], ttl)
        redis.call('PEXPIRE', KEYS[3], ttl)
        return token
    end
    -- Ours, but its metadata is gone. No reply can have told the token, so a new one is as good.
elseif ARGV[6] == '1' then
    local turn = false
    -- Bounded: a long line of dead waiters is cleared over several calls.
    for _ = 1, 100 do
        local head = redis.call('LINDEX', KEYS[4], 0)
        turn = not head or head == ARGV[7]
        if turn or redis.call('EXISTS', KEYS[4] .. ':' .. head) == 1 then break end
        redis.call('LPOP', KEYS[4])
    end
    if not turn then return pttl end
end

local token, time = raise_counter(KEYS[2], ARGV[3], ARGV[5])
if not token then return time end
leave_queue()
redis.call('HSET', KEYS[1], ARGV[1], '1')
redis.call('PEXPIRE', KEYS[1], ttl)
redis.call('SET', KEYS[3], token .. ' ' .. ARGV[3] .. ' ' .. time .. ' ' .. ARGV[1] .. ' ' .. ARGV[4], 'PX', ttl)
return token
