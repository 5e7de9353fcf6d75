-- Put before the scripts that free something.
--
-- publish(channel, how, message) wakes waiters in Java, and those that cannot track keys. how: PUBLISH, SPUBLISH
-- (sharded, in a cluster) or BOTH. Java takes the message for a number. pcall: an ACL without this channel must not keep the lock from being released.
local function publish(channel, how, message)
    if how ~= 'SPUBLISH' then redis.pcall('PUBLISH', channel, message) end
    if how ~= 'PUBLISH' then redis.pcall('SPUBLISH', channel, message) end
end
