-- Included by the scripts of semaphores that use the number of free permits.
--
-- number_of(free): what the string of free permits holds; nil: there is none. Fails on a key of another type; or the
-- second value is an error reply, if it is no number: another library's lock.
local function number_of(free)
    local text = redis.call('GET', free)
    if not text then return nil end
    if not string.find(text, '^%-?%d+$') then return nil, redis.error_reply('HOLDFAST NOTASEMAPHORE') end
    return tonumber(text)
end

-- write_free(free, value, out, keep): set the number of free permits. keep: ttl in ms, as text; '0' for none. As for a
-- fencing counter, a key without a ttl, which is Java's, never gets one. The sorted set lasts as long.
local function write_free(free, value, out, keep)
    local text, left = string.format('%.0f', value), redis.call('PTTL', free)
    if keep == '0' or left == -1 then
        redis.call('SET', free, text)
        if left >= 0 then redis.call('PERSIST', out) end
    else
        redis.call('SET', free, text, 'PX', keep)
        redis.call('PEXPIRE', out, keep)
    end
end

