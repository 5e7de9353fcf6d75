-- Included by hand_over.lua.
--
-- listens(wire, suffix): whether a client of this server listens for pushes to ``wire``; or an error reply. ``suffix``:
-- what keys beside the lock end with.
local function listens(wire, suffix)
    local id, found = string.sub(wire, 2)
    if string.sub(wire, 1, 1) ~= 's' then
        found = redis.pcall('PUBSUB', 'NUMSUB', 'holdfast_wake:' .. id)
    else
        found = redis.pcall('PUBSUB', 'SHARDNUMSUB', 'holdfast_wake' .. suffix .. ':' .. id)
    end
    return found.err or found[2] > 0
end

