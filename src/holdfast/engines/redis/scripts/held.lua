-- Count the owners of a lock. Writes nothing. Names one key: so it can be asked while the lock's slot is being moved.
--
-- KEYS     1 lock
-- Returns  how many owners it has. What is not a lock is refused.
local holders, problem = owners(KEYS[1])
return holders and #holders / 2 or problem
