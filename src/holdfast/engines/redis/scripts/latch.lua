-- Included by the scripts of latches, after register.lua.
--
-- A latch is a register, and beside it Redisson's RCountDownLatch: a string with the count, which is gone when the latch
-- is open. The register remembers what it has left there (field shared; '' for none): what differs was done by Java. Its
-- value is JSON: [made, round, left, size, marks], see primitives/latch.py.
--
-- adopt(register, count, ttl): do in the register what Java has done since. Returns nil, or an error reply.
-- A number that is gone was counted down to zero. A larger one was set after that. What Java has done and undone since,
-- so that the number is the same, is not seen.
local function adopt(register, count, ttl)
    local text = redis.call('GET', count) or ''
    local found = redis.call('HMGET', register, 'value', 'version', 'shared')
    if text == (found[3] or '') then return nil end
    if text ~= '' and not string.find(text, '^%-?%d+$') then return redis.error_reply('WRONGTYPE not a count') end
    local number = math.max(tonumber(text) or 0, 0)
    local state
    if found[1] then
        state = cjson.decode(found[1])
        local left = state[3]
        if left > 0 and (number == 0 or number > left) then state[2] = state[2] + 1 end
        if number > left then state[4] = number end
        state[3] = number
    else
        state = {'java.' .. string.format('%.0f', server_time()), 0, number, math.max(number, 1), {}}
    end
    local version = string.format('%.0f', (tonumber(found[2]) or 0) + 1)
    redis.call('HSET', register, 'value', cjson.encode(state), 'version', version, 'shared', text)
    return keep(register, ttl, not found[1])
end

-- expire_count(count, ttl): it lasts longer than the register, or it would seem to be counted down. One without a ttl,
-- which is Java's, never gets one.
local function expire_count(count, ttl)
    if redis.call('PTTL', count) > 0 then redis.call('PEXPIRE', count, string.format('%.0f', 2 * ttl)) end
end

