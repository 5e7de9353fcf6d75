-- Give a semaphore another size; create it if there is none.
--
-- KEYS     1 free permits  2 permits that are out
-- ARGV     1 size  2 ttl of the semaphore, ms (0: none)  3 channel  4 how to publish
-- Returns  how many are free now. Negative: more are out than the new size, and they stay out.
--
-- Idempotent. The write wakes the first waiter: it may be served now, or never any more.
local _, problem = number_of(KEYS[1])
if problem then return problem end
reclaim(KEYS[2], server_ms())
local free = ARGV[1] - redis.call('ZCARD', KEYS[2])
write_free(KEYS[1], free, KEYS[2], ARGV[2])
if free > 0 then publish(ARGV[3], ARGV[4], string.format('%.0f', free)) end
return free
