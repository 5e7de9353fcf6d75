-- Included by the scripts that free a lock, after publish.lua.
--
-- wake_fair_head(channel, how) wakes the first waiter of Redisson's fair lock. It does not listen on the lock's channel,
-- but on one of its own, and would sleep until the TTL that it has seen is over. The key of Redisson's queue is made from
-- the channel's, redisson_lock__channel:…: they have the same hash tag. pcall: a user may lack the right to read it.
local function wake_fair_head(channel, how)
    local queue = 'redisson_lock_queue' .. string.sub(channel, 23)
    if redis.pcall('EXISTS', queue) ~= 1 then return end
    local head = redis.pcall('LINDEX', queue, 0)
    if type(head) == 'string' then publish(channel .. ':' .. head, how, '0') end
end

