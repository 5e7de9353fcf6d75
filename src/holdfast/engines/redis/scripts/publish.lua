-- Included by the scripts that free something.
--
-- publish(channel, how, message) wakes waiters in Java, and those that cannot track keys: whether there are any at this
-- server. how: PUBLISH, SPUBLISH (sharded, in a cluster) or BOTH. Java takes the message for a number. pcall: an ACL
-- without this channel must not keep the lock from being released.
local function publish(channel, how, message)
    local heard = how ~= 'SPUBLISH' and redis.pcall('PUBLISH', channel, message)
    local shard = how ~= 'PUBLISH' and redis.pcall('SPUBLISH', channel, message)
    return type(heard) == 'number' and heard > 0 or type(shard) == 'number' and shard > 0
end
