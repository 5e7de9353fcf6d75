-- Give a semaphore another size; create it if there is none.
--
-- KEYS     1 free permits  2 permits that are out  3 facts about the holders  4 what tombstones begin with
-- ARGV     1 size  2 ttl of the semaphore, ms (0: none)  3 channel  4 how to publish  5 request ('': it has no name)
--          6 ttl of the request's tombstone, ms
-- Returns  how many are free now. Negative: more are out than the new size, and they stay out. nil: this request was
--          done before.
--
-- Idempotent: a repeat or a late duplicate of a request finds its tombstone, and does not undo a newer one. The write
-- wakes the first waiter: it may be served now, or never any more.

-- include publish permits_ids permits_free permits_out permits_facts
local done = KEYS[4] .. ':gone:' .. ARGV[5]
if redis.call('EXISTS', done) == 1 then return nil end
local _, problem = number_of(KEYS[1])
if problem then return problem end
local now = server_ms()
restore(KEYS[1], KEYS[2], KEYS[3], now)
reclaim(KEYS[2], now)
local free = ARGV[1] - redis.call('ZCARD', KEYS[2])
write_free(KEYS[1], free, KEYS[2], ARGV[2])
if ARGV[5] ~= '' then redis.call('SET', done, '1', 'PX', ARGV[6]) end
if free > 0 then publish(ARGV[3], ARGV[4], string.format('%.0f', free)) end
return free
