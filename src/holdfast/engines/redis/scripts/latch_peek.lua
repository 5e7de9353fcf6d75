-- Read the register of a latch, with what Java has done.
--
-- KEYS     1 register  2 waiters present  3 count, RCountDownLatch
-- ARGV     1 ttl of the register, ms ('0': none)
-- Returns  as peek.lua. A string that is no number is refused.
--
-- Idempotent: a repeat finds that Java's changes are in the register.

-- include register latch
local problem = adopt(KEYS[1], KEYS[3], ARGV[1])
if problem then return problem end
if keep_read(KEYS[1], ARGV[1]) then expire_count(KEYS[3], ARGV[1]) end
return content(KEYS[1], KEYS[2])
