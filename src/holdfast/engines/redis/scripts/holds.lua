-- Put before the scripts that ask whether a claim holds its lock.
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

