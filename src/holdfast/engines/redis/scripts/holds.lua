-- Included by the scripts that ask whether a claim holds its lock.
--
-- holds(lock, owner): 1 it does; 0 the lock is free; -1 another owner has it, or the key is of another type, which has
-- replaced the lock; or an error reply.
local function holds(lock, owner)
    local held = redis.pcall('HEXISTS', lock, owner)
    if held == 1 then return 1 end
    if held == 0 then return -redis.call('EXISTS', lock) end
    if string.find(held.err, 'WRONGTYPE', 1, true) then return -1 end
    return held
end

-- holds_alone(lock, owner): the same for a lock with one owner; or -2: it holds the lock, but so does a Redisson
-- read-write lock, which does not see other kinds and adds itself to the hash. Then the hold is lost, and its field is
-- removed: with it, the last release in Java would not free the lock. (pcall: an ACL for locks may lack HDEL.)
local function holds_alone(lock, owner)
    local held = holds(lock, owner)
    if held ~= 1 or redis.call('HEXISTS', lock, 'mode') == 0 then return held end
    redis.pcall('HDEL', lock, owner)
    if redis.pcall('HLEN', lock) == 1 then redis.pcall('DEL', lock) end
    return -2
end

