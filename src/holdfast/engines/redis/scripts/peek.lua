-- Read a register without a guard.
--
-- KEYS     1 register  2 waiters present
-- ARGV     1 ttl of the register, ms ('0': none)
-- Returns  value, queue, version, waiters that are present.
--
-- Idempotent: writes nothing but a ttl.

-- include register
keep_read(KEYS[1], ARGV[1])
return content(KEYS[1], KEYS[2])
