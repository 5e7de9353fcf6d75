-- Included by the scripts that bring a server's fencing counter up to that of others.
--
-- raise_to(key, token, keep) makes the counter at least ``token``. keep: as for raise_counter in token.lua.
local function raise_to(key, token, keep)
    local last = redis.call('GET', key)
    local low = (tonumber(last or '') or 0) < tonumber(token)
    if keep == '0' then
        redis.call('SET', key, low and token or last)
    elseif not last then
        redis.call('SET', key, token, 'PX', keep)
    elseif low then
        redis.call('SET', key, token, 'KEEPTTL')
    end
end

