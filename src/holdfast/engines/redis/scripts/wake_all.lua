-- Included by the scripts that let readers in.
--
-- wake_all(channel, how) wakes all threads of Java that wait for a read-write lock; how: as in publish.lua. '1' wakes
-- each that sleeps by now. One that has seen the lock held, and is about to sleep, misses it: it would sleep until the
-- TTL that it has seen is over. A '0' wakes one thread of each process, and is kept there for the next that goes to
-- sleep: so some follow, each at the price of a useless look. None follows if no client listens (of a cluster whose
-- messages are not sharded: at this node).
local function wake_all(channel, how)
    for _, command in ipairs(how == 'BOTH' and {'PUBLISH', 'SPUBLISH'} or {how}) do
        local heard = redis.pcall(command, channel, '1')
        for _ = 1, heard ~= 0 and 4 or 0 do redis.pcall(command, channel, '0') end
    end
end

