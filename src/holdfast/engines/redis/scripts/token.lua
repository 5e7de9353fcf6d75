-- Put before the scripts that issue fencing tokens, after counter.lua.
--
-- raise_counter(key, tokens, keep, proposal) reserves a block of tokens. Returns its last as text, and the server's time
-- as text; or nil and an error reply, before anything was written.
-- counter := max(last + 1, server TIME in microseconds) + tokens - 1; with a proposal (not '0') that in place of the
-- time: where several servers number one lock, all must be given the same. The time lets the counter survive its own loss
-- (FLUSHALL, DEL, expiry, a restart without disk): what comes after is still larger than what came before.
-- keep: see write_counter.
-- The number is written by %.0f: Lua's own conversion would write 1.79e+15, which no INCR could read.
local function raise_counter(key, tokens, keep, proposal)
    local last = redis.call('GET', key)
    local time = redis.call('TIME')
    local now = time[1] * 1000000 + time[2]
    local token = proposal == '0' and now or tonumber(proposal)
    if last then
        local following = (tonumber(last) or 0/0) + 1  -- 0/0: what is not a number must not pass for a small one
        if not (token >= following) then token = following end
    end
    token = token + (tokens - 1)  -- in this order: 2^53 + 1 - 1 would be less than 2^53
    if not (token < 9007199254740992) then
        return nil, redis.error_reply('HOLDFAST the fencing counter is not a number, or has reached 2^53')
    end
    token = string.format('%.0f', token)
    write_counter(key, last, token, keep)
    if last and keep ~= '0' then
        -- The counter says when it was last raised: so the first grant in each thirtieth of its ttl refreshes that, and
        -- the others need not look.
        local part = keep * 1000 / 30
        if math.floor(last / part) ~= math.floor(now / part) then
            local left = redis.call('PTTL', key)
            if left >= 0 and left < tonumber(keep) then redis.call('PEXPIRE', key, keep) end
        end
    end
    return token, time[1] .. '.' .. string.sub('00000' .. time[2], -6)
end

