-- Included by the scripts that look at a lock for people.
--
-- waiters(queue, most): number of live waiters; of the first ``most``: id, value, id, value …
local function waiters(queue, most)
    local waiting, described = 0, {}
    -- Bounded: inspecting must not block the server.
    for _, waiter in ipairs(redis.call('LRANGE', queue, 0, 9999)) do
        if waiting >= most then
            waiting = waiting + (string.find(waiter, ' ', 1, true) and 1 or redis.call('EXISTS', queue .. ':' .. waiter))
        else
            -- One that has joined just now has no key yet: see turn.lua.
            local id, since, claim = string.match(waiter, '^(%x+) %a%x+ %d+ ([%d.]+) %d+ %d+ (.*)$')
            local value = id and since .. ' ' .. claim or redis.call('GET', queue .. ':' .. waiter)
            if value then
                waiting = waiting + 1
                described[#described + 1] = id or waiter
                described[#described + 1] = string.match(value, '^[^%z]*')
            end
        end
    end
    return waiting, described
end

