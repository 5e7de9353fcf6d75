-- Leave the queue.
--
-- KEYS     1 queue  2 key of this waiter
-- ARGV     1 waiter
-- Returns  1 if the waiter was in the queue, else 0.
--
-- Idempotent. Deleting the key wakes the waiter behind, which watches it.
redis.call('LREM', KEYS[1], 1, ARGV[1])
return redis.call('DEL', KEYS[2])
