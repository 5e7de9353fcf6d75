-- Included by the scripts that release a lock, after holds.lua.
--
-- let_go(lock, owner, removed): the owner was not removed by HDEL, which has answered ``removed``. 0, -1, -2 or an error
-- reply as of these; 1 if HDEL was refused (an ACL for locks may lack it), and the lock is deleted.
local function let_go(lock, owner, removed)
    if removed == 0 then return -redis.call('EXISTS', lock) end
    if string.find(removed.err, 'WRONGTYPE', 1, true) then return -1 end
    local held = holds_alone(lock, owner)
    if held == 1 then redis.call('DEL', lock) end
    return held
end

