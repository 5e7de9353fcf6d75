-- Release the lock of a claim: to the first waiter, if there is one. With a tombstone and the waiter's keys: withdraw it.
--
-- KEYS     1 lock  2 holder's metadata  3 what tombstones begin with  [4 queue  5 key of this claim's waiter]
-- ARGV     1 owner  2 channel  3 how to publish  4 ttl of the tombstone, ms ('0': none)  [5 waiter  6 its first entry]
-- Returns  1 it was ours and is released; 0 it is free; -1 another owner holds it, or the key is of another type;
--          -2 it was ours, and another program's, which has it now: see holds.lua.
--
-- Idempotent: a repeat finds nothing of ours (0 or -1) and changes nothing; it never touches another owner's lock. The
-- tombstone comes first: if it cannot be written (OOM) the lock is still there and the script may be repeated.

-- First what nearly every release is: of a lock that no caller waits for. ``held``, 1: the lock was let go; ``entry``:
-- then, the waiter that has left the queue for it, or false; ``heard``: by how many, if it was published that the lock is
-- free.
local suffix = string.sub(ARGV[2], 23)
local queue, fair = 'holdfast_queue' .. suffix, 'redisson_lock_queue' .. suffix
local held, entry, heard
if ARGV[4] == '0' and not KEYS[4] then
    held = redis.pcall('HDEL', KEYS[1], ARGV[1])
    if held == 1 then
        entry = redis.pcall('LPOP', queue)
        if not entry and ARGV[3] ~= 'BOTH' and redis.pcall('EXISTS', KEYS[1], fair) == 0 then
            redis.pcall('DEL', KEYS[2])
            heard = redis.pcall(ARGV[3], ARGV[2], '0')
            if heard == 0 then return 1 end
        end
    end
end
if held ~= 1 then
    if ARGV[4] ~= '0' then redis.call('SET', KEYS[3] .. ':gone:' .. ARGV[1], '1', 'PX', ARGV[4]) end
    if KEYS[4] then
        redis.call('DEL', KEYS[5])
        -- Without its key the waiter counts as dead, and others drop it: an error of the queue must not keep the lock
        -- held.
        redis.pcall('LREM', KEYS[4], 0, ARGV[5])
        if ARGV[6] then redis.pcall('LREM', KEYS[4], 0, ARGV[6]) end
    end
    -- include holds let_go
    held = let_go(KEYS[1], ARGV[1])
    if held ~= 1 then return held end
    entry = redis.pcall('LPOP', queue)
end
-- Whatever fails from here on, the lock was released.
local outcome, others = 'free', false
if heard == nil then
    if type(entry) == 'string' then
        -- include hand_over
        local done, found = pcall(hand_over, KEYS[1], KEYS[2], KEYS[3], ARGV[2], ARGV[3], entry, ARGV[1])
        outcome = done and found or 'free'
        if outcome == 'given' then return held end
    else
        -- include mixed
        others = redis.pcall('EXISTS', KEYS[1], fair) ~= 0
        if others and is_mixed(KEYS[1]) then outcome = 'mixed' end
    end
    if outcome == 'mixed' then return -2 end
    redis.pcall('DEL', KEYS[2])
    -- include publish
    heard = outcome == 'free' and publish(ARGV[2], ARGV[3], '0') and 1 or 0
end
if type(heard) == 'number' and heard > 0 then
    -- include yield
    if others_turn(KEYS[3]) then yield(KEYS[3]) end
end
if others or outcome == 'yielded' then
    -- include publish fair_head
    wake_fair_head(ARGV[2], ARGV[3])
end
return held
