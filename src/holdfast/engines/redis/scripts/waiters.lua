-- Put before the scripts that look at a lock for people.
--
-- waiters(queue, most): number of live waiters; of the first ``most``: id, value, id, value …
local function waiters(queue, most)
    local waiting, described = 0, {}
    -- Bounded: inspecting must not block the server.
    for _, waiter in ipairs(redis.call('LRANGE', queue, 0, 9999)) do
        if waiting >= most then
            waiting = waiting + redis.call('EXISTS', queue .. ':' .. waiter)
        else
            local value = redis.call('GET', queue .. ':' .. waiter)
            if value then
                waiting = waiting + 1
                described[#described + 1] = waiter
                described[#described + 1] = value
            end
        end
    end
    return waiting, described
end

