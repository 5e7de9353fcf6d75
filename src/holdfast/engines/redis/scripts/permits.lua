-- Put before the scripts of semaphores.
--
-- A semaphore is Redisson's RPermitExpirableSemaphore: a string with the number of free permits, and a sorted set of
-- those that are out, id -> when it expires, ms. size = free + out.
--
-- permit_ids(owner, count): the ids of a claim's permits, 16 bytes each, the same for each repeat of the claim.
local function permit_ids(owner, count)
    local ids = {}
    for i = 1, tonumber(count) do
        local hex = string.sub(redis.sha1hex(owner .. '#' .. i), 1, 32)
        ids[i] = string.gsub(hex, '%x%x', function(byte) return string.char(tonumber(byte, 16)) end)
    end
    return ids
end

-- each_chunk(list, act): Lua passes no more than some thousand arguments at once.
local function each_chunk(list, act)
    for start = 1, #list, 1000 do act(unpack(list, start, math.min(start + 999, #list))) end
end

-- scores(out, ids): the scores of those that are out, and how many that are.
local function scores(out, ids)
    local found, count = {}, 0
    each_chunk(ids, function(...)
        for _, score in ipairs(redis.call('ZMSCORE', out, ...)) do
            found[#found + 1] = score
            if score then count = count + 1 end
        end
    end)
    return found, count
end

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

-- reclaim(out, now): take back permits whose time is over; how many. Some at a time.
local function reclaim(out, now)
    local expired = redis.call('ZRANGEBYSCORE', out, '0', string.format('%.0f', now), 'LIMIT', '0', '1000')
    if #expired > 0 then redis.call('ZREM', out, unpack(expired)) end
    return #expired
end

-- server_ms(): the server's time in ms.
local function server_ms()
    local time = redis.call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end

