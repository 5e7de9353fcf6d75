-- Included by the scripts of semaphores that look at what is out, after permits_ids.lua.
--
-- scores(out, ids, now): their scores; how many of them are out; and how many are in the set. The others of the set have
-- expired by now, which counts as returned although no claim has taken them back yet.
local function scores(out, ids, now)
    local found, live, present = {}, 0, 0
    each_chunk(ids, function(...)
        for _, score in ipairs(redis.call('ZMSCORE', out, ...)) do
            found[#found + 1] = score
            if score then
                present = present + 1
                if tonumber(score) > now then live = live + 1 end
            end
        end
    end)
    return found, live, present
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

