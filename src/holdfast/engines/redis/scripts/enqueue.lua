-- Join the queue, or look at it: which waiter or key to watch.
--
-- KEYS     1 queue  2 key of this waiter
-- ARGV     1 waiter  2 ttl of a waiter's key, ms  3 ttl of the queue, ms  4 '1': join, else only look
--          5 how many at the head watch the lock itself  6 owner and description of its claim, for inspect
--          7 '1': a reader, which conflicts with no other reader (their ids begin with r)
--          [8 its first entry in the queue, see turn.lua: it has joined already]
-- Returns  -1: no longer queued (the waiter's key expired): join again under a new id; or its claim was withdrawn, and
--          has not joined. 0: watch the lock.
--          Text: watch this waiter, the live predecessor (or one just dropped: its key is gone, so ask again).
--
-- Idempotent: a repeated join finds the waiter's key. A waiter is alive while its key is; dead predecessors are dropped,
-- some at a time. An id never joins twice: a waiter must not end up watching one that re-queued behind it. Nor does a
-- claim that was withdrawn, over another connection, before its request to join came: others would wait behind it.
-- The key is refreshed rarely: each refresh is a write, and wakes the waiter that watches it.

-- include turn
local queue, me = KEYS[1], ARGV[1]

-- The ttl is set before, too: a refusal (an ACL without PEXPIRE) must not leave a queue without one.
local function append()
    local refreshed = redis.call('PEXPIRE', queue, ARGV[3])
    local length = redis.call('RPUSH', queue, me)
    if refreshed == 0 then redis.call('PEXPIRE', queue, ARGV[3]) end
    return length
end

local function join()
    -- Not one of KEYS: while its slot is moved, a key more that is not there would have the server refuse the script.
    local tombstone = 'holdfast_lock' .. string.sub(queue, 15) .. ':gone:' .. string.match(ARGV[6], '^%S+')
    if redis.call('EXISTS', tombstone) == 1 then return end
    local time = redis.call('TIME')
    local since = time[1] .. '.' .. string.sub('00000' .. time[2], -6)
    if redis.call('SET', KEYS[2], since .. ' ' .. ARGV[6], 'PX', ARGV[2], 'NX') then return append() - 1 end
end

local place = ARGV[4] == '1' and join()
if ARGV[8] then
    place = redis.call('LPOS', queue, ARGV[8])
    if place then
        settled(queue, place, ARGV[8], ARGV[2])
        redis.call('PEXPIRE', queue, ARGV[3])
    end
end
if not place then
    local left = redis.call('PTTL', KEYS[2])
    if left == -2 then
        redis.call('LREM', queue, 1, me)
        return -1
    elseif left < tonumber(ARGV[2]) * 3 / 4 then
        redis.call('PEXPIRE', KEYS[2], ARGV[2])
        redis.call('PEXPIRE', queue, ARGV[3])
    end
    -- If it is not there, the queue was deleted while they waited: each joins at its end again.
    place = redis.call('LPOS', queue, me) or append() - 1
end
if ARGV[7] == '1' then
    local before = place > 0 and redis.call('LRANGE', queue, 0, place - 1) or {}
    for i = place, 1, -1 do
        if string.sub(before[i], 1, 1) ~= 'r' then
            if redis.call('EXISTS', queue .. ':' .. before[i]) == 1 then return before[i] end
            redis.call('LREM', queue, 1, before[i])
        end
    end
    return 0
end
local front, ahead = tonumber(ARGV[5])
for _ = 1, 100 do
    if place < front then return 0 end
    ahead = settled(queue, place - 1, redis.call('LINDEX', queue, place - 1), ARGV[2])
    if redis.call('EXISTS', queue .. ':' .. ahead) == 1 then break end
    redis.call('LREM', queue, 1, ahead)
    place = place - 1
end
return ahead
