-- Included by the scripts that release a lock, after holds.lua.
--
-- let_go(lock, owner): removes the owner; 1, 0, -1, -2 or an error reply as of these. (An ACL for locks may lack HDEL.)
local function let_go(lock, owner)
    local held = redis.pcall('HDEL', lock, owner)
    if held == 1 then return 1 end
    if held == 0 then return -redis.call('EXISTS', lock) end
    if string.find(held.err, 'WRONGTYPE', 1, true) then return -1 end
    held = holds_alone(lock, owner)
    if held == 1 then redis.call('DEL', lock) end
    return held
end

