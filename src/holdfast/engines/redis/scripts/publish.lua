-- Put before the scripts that free a lock.
--
-- publish(channel, how) wakes waiters in Java, and those that cannot track keys. how: PUBLISH, SPUBLISH (sharded, in a
-- cluster) or BOTH. pcall: an ACL without this channel must not keep the lock from being released.
local function publish(channel, how)
    if how ~= 'SPUBLISH' then redis.pcall('PUBLISH', channel, '0') end
    if how ~= 'PUBLISH' then redis.pcall('SPUBLISH', channel, '0') end
end
