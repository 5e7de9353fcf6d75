-- Included by the scripts that serve waiters in the order of the queue.
--
-- A waiter has its id in the queue, and is alive while its key is. One that a release hands the lock to begins with more:
-- "id wire lease since tokens counter-ttl owner description", and no key, for most waits are short. (``wire``: where to push the
-- token.) settled(queue, at, entry, ttl) makes an id and a key of it, from which its life is limited; returns the id.
local function settled(queue, at, entry, ttl)
    local id, seat, since, rest, claim = string.match(entry, '^(%x+) (%a%x+ %d+) ([%d.]+) (%d+ %d+) (.*)$')
    if not id then return entry end
    redis.call('SET', queue .. ':' .. id, since .. ' ' .. claim .. '\0' .. seat .. ' ' .. rest, 'PX', ttl)
    redis.pcall('LSET', queue, at, id)  -- an ACL may lack it: then it counts as alive for longer
    return id
end

-- is_next(queue, waiter): whether no live waiter is before this one (nil: a claim that is not queued). Dead heads are
-- dropped; bounded: a long queue of dead waiters is cleared over several calls.
local function is_next(queue, waiter)
    for _ = 1, 100 do
        local head = redis.call('LINDEX', queue, '0')
        if not head or head == waiter then return true end
        if waiter and string.sub(head, 1, #waiter + 1) == waiter .. ' ' then return true end
        if redis.call('EXISTS', queue .. ':' .. settled(queue, 0, head, '2000')) == 1 then return false end
        redis.call('LPOP', queue)
    end
    return false
end

