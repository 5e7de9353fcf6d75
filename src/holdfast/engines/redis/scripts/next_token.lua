-- Included by the scripts that issue fencing tokens.
--
-- next_token(key, tokens, keep): as raise_counter of raise_counter.lua, without a proposal, in fewer commands where the
-- counter is in order, as in acquire_free.lua; and for how many microseconds the last grant has lasted, which is the time
-- that its token is.
-- The ttl of the counter is refreshed by a token that has other leading digits than the one before. How many depends on
-- the length of the ttl: they change after a hundredth of it at most, and after a thousandth at least.
local function next_token(key, tokens, keep)
    local call = redis.call
    if tokens ~= '1' then
        -- include raise_counter
        local last = tonumber(call('GET', key)) or 0
        local token, time = raise_counter(key, tokens, keep, '0')
        return token, time, token and token - last
    end
    local time = call('TIME')
    local seconds, micros = time[1], time[2]
    if #micros < 6 then micros = string.sub('00000' .. micros, -6) end
    local token, last = seconds .. micros
    if keep == '0' then last = call('SET', key, token, 'GET') else last = call('SET', key, token, 'KEEPTTL', 'GET') end
    if not last then
        if keep ~= '0' then call('SET', key, token, 'PX', keep) end
        return token, seconds .. '.' .. micros, 0
    elseif #last ~= 16 or last >= token then
        -- include raise_counter
        if keep == '0' then call('SET', key, last) else call('SET', key, last, 'KEEPTTL') end
        token, time = raise_counter(key, tokens, keep, '0')
        return token, time, 0
    elseif keep ~= '0' and last < string.sub(token, 1, 16 - #keep) then
        local left = call('PTTL', key)
        if left >= 0 and left < tonumber(keep) then call('PEXPIRE', key, keep) end
    end
    return token, seconds .. '.' .. micros, token - last
end

