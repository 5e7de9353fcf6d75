-- Release one hold of a read-write lock. With a tombstone and the waiter's keys: withdraw the claim.
--
-- KEYS     1 lock  2 facts about the holders  3 what tombstones begin with  4 time-out key of this reader
--          [5 queue  6 key of this claim's waiter]
-- ARGV     1 owner  2 channel  3 'read' or 'write'  4 how to publish  [5 ttl of the tombstone, ms
--          ('0' or absent: none)  6 waiter]
-- Returns  1 it was ours and is released; 0 this claim does not hold it; -1 another owner's hold excludes it.
--
-- The last hold deletes the lock. A writer that leaves readers behind (its own) makes it a lock that is read: they wake
-- other readers, so this is published. A reader under a write leaves the lock's ttl as it is, else the lock lasts as
-- long as the longest of the other readers.
-- Idempotent: a repeat finds nothing of ours and changes nothing. The tombstone comes first: if it cannot be written
-- (OOM) the hold is still there and the script may be repeated.

local call, lock, owner = redis.call, KEYS[1], ARGV[1]
local reading, how = ARGV[3] == 'read', ARGV[4]
local field = reading and owner or owner .. ':write'
if ARGV[5] and ARGV[5] ~= '0' then call('SET', KEYS[3] .. ':gone:' .. owner, '1', 'PX', ARGV[5]) end
if KEYS[5] then
    call('DEL', KEYS[6])
    -- Without its key the waiter counts as dead, and others drop it: an error of the queue must not keep the lock held.
    redis.pcall('LREM', KEYS[5], '1', ARGV[6])
end
if redis.pcall('HEXISTS', lock, field) ~= 1 then
    -- include holds
    local held = holds(lock, field)
    if held == -1 and reading and redis.pcall('HGET', lock, 'mode') == 'read' then return 0 end
    return held
end

local last, lasts, dead = call('HLEN', lock) <= 2
if not last then
    local looks = not reading
    if reading and call('HGET', lock, 'mode') == 'read' then
        -- Unless this reader's hold was the longest, the lock lasts as long as another's.
        looks = call('PTTL', KEYS[4]) >= call('PTTL', lock) - 1
    end
    if looks then
        -- include readers
        local prefix = string.sub(ARGV[2], 17)  -- of their time-out keys
        lasts, dead = until_last(lock, prefix, field)
        last = lasts == 0
    end
end
if last then
    call('DEL', lock, KEYS[2], KEYS[4])
    if reading then
        -- include publish
        publish(ARGV[2], how, '0')
    else
        -- include wake_all
        wake_all(ARGV[2], how)
    end
    return 1
end
call('HDEL', lock, field, unpack(dead or {}))
call('HDEL', KEYS[2], owner, unpack(dead or {}))
if lasts then call('PEXPIRE', lock, lasts) end
if reading then
    call('DEL', KEYS[4])
else
    call('HSET', lock, 'mode', 'read')
    -- include wake_all
    wake_all(ARGV[2], how)
end
return 1
