-- Release the lock of a claim. With a tombstone and the waiter's keys: withdraw the claim.
--
-- KEYS     1 lock  2 holder's metadata  3 what tombstones begin with  [4 queue  5 key of this claim's waiter]
-- ARGV     1 owner  2 channel  3 how to publish  4 ttl of the tombstone, ms ('0': none)  [5 waiter]
-- Returns  1 it was ours and is released; 0 it is free; -1 another owner holds it, or the key is of another type.
--
-- Idempotent: a repeat finds nothing of ours (0 or -1) and changes nothing; it never touches another owner's lock. The
-- tombstone comes first: if it cannot be written (OOM) the lock is still there and the script may be repeated.
if ARGV[4] ~= '0' then redis.call('SET', KEYS[3] .. ':gone:' .. ARGV[1], '1', 'PX', ARGV[4]) end
if KEYS[4] then
    redis.call('DEL', KEYS[5])
    -- Without its key the waiter counts as dead, and others drop it: an error of the queue must not keep the lock held.
    redis.pcall('LREM', KEYS[4], 1, ARGV[5])
end
local held = holds(KEYS[1], ARGV[1])
if held == 1 then
    redis.call('DEL', KEYS[1], KEYS[2])
    publish(ARGV[2], ARGV[3], '0')
end
return held
