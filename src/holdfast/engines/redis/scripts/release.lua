-- Release the lock of a claim: to the first waiter, if there is one. With a tombstone and the waiter's keys: withdraw it.
--
-- KEYS     1 lock  2 holder's metadata  3 what tombstones begin with  [4 queue  5 key of this claim's waiter]
-- ARGV     1 owner  2 channel  [3 how to publish (absent: PUBLISH)  4 ttl of the tombstone, ms ('0': none; absent: none,
--          and no waiter is expected)  5 waiter  6 its first entry]
-- Returns  1 it was ours and is released; 0 it is free; -1 another owner holds it, or the key is of another type;
--          -2 it was ours, and another program's, which has it now: see holds.lua.
--
-- Idempotent: a repeat finds nothing of ours (0 or -1) and changes nothing; it never touches another owner's lock. The
-- tombstone comes first: if it cannot be written (OOM) the lock is still there and the script may be repeated.

local try, lock, owner, channel, how = redis.pcall, KEYS[1], ARGV[1], ARGV[2], ARGV[3] or 'PUBLISH'
local suffix = string.sub(channel, 23)
local queue, fair = 'holdfast_queue' .. suffix, 'redisson_lock_queue' .. suffix
if ARGV[4] and ARGV[4] ~= '0' then
    redis.call('SET', KEYS[3] .. ':gone:' .. owner, '1', 'PX', ARGV[4])
end
if KEYS[4] then
    redis.call('DEL', KEYS[5])
    -- Without its key the waiter counts as dead, and others drop it: an error of the queue must not keep the lock held.
    try('LREM', queue, '0', ARGV[5])
    if ARGV[6] then try('LREM', queue, '0', ARGV[6]) end
end
local held = try('HDEL', lock, owner)
if held ~= 1 then
    -- include holds let_go
    held = let_go(lock, owner, held)
    if held ~= 1 then return held end
end

-- Whatever fails from here on, the lock was released. First what nearly every release finds: no waiter, neither here nor
-- in the queue of Redisson's fair lock, no other owner. ``heard``: by how many, if it was published that the lock is free.
local found, entry, heard
if not ARGV[4] then found = try('EXISTS', lock, queue, fair) end
if found ~= 0 then
    entry = try('LPOP', queue)
    if type(entry) ~= 'string' then entry, found = nil, try('EXISTS', lock, fair) end
end
if found == 0 and how ~= 'BOTH' then
    try('DEL', KEYS[2])
    heard = try(how, channel, '0')
    if heard == 0 then return 1 end
end
local outcome, others = 'free', false
if not heard then
    if entry then
        -- include hand_over
        local done, found = pcall(hand_over, lock, KEYS[2], KEYS[3], channel, how, entry, owner)
        outcome = done and found or 'free'
        if outcome == 'given' then return 1 end
    elseif found ~= 0 then
        -- include mixed
        others = true
        if is_mixed(lock) then outcome = 'mixed' end
    end
    if outcome == 'mixed' then return -2 end
    try('DEL', KEYS[2])
    -- include publish
    heard = outcome == 'free' and publish(channel, how, '0') and 1 or 0
end
if type(heard) == 'number' and heard > 0 then
    -- include yield
    if others_turn(KEYS[3]) then yield(KEYS[3]) end
end
if others or outcome == 'yielded' then
    -- include publish fair_head
    wake_fair_head(channel, how)
end
return 1
