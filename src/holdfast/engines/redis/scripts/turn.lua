-- Put before the scripts that serve waiters in the order of the queue.
--
-- is_next(queue, waiter): whether no live waiter is before this one (nil: a claim that is not queued). Dead heads are
-- dropped; bounded: a long queue of dead waiters is cleared over several calls.
local function is_next(queue, waiter)
    for _ = 1, 100 do
        local head = redis.call('LINDEX', queue, 0)
        if not head or head == waiter then return true end
        if redis.call('EXISTS', queue .. ':' .. head) == 1 then return false end
        redis.call('LPOP', queue)
    end
    return false
end

