-- Included by hand_over.lua.
--
-- listens(word, wire): whether a client of this server listens on the channel ``wire``, to which ``word`` (PUBLISH or
-- SPUBLISH) pushes; or an error reply.
local function listens(word, wire)
    local found = redis.pcall('PUBSUB', word == 'PUBLISH' and 'NUMSUB' or 'SHARDNUMSUB', wire)
    return found.err or found[2] > 0
end

