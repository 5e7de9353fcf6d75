-- Count the owners of a lock. Names one key: so it can be asked while the lock's slot is being moved.
--
-- KEYS     1 lock
-- ARGV     none
-- Returns  how many owners it has. A hash that is not a lock is refused.
--
-- Idempotent: writes nothing.

-- include owners
local holders, problem = owners(KEYS[1])
return holders and #holders / 2 or problem
