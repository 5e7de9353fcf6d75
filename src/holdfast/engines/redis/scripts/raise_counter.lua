-- Included by the scripts that issue fencing tokens.
--
-- raise_counter(key, tokens, keep, proposal) reserves a block of tokens. Returns its last as text, and the server's time
-- as text; or nil and an error reply, before anything was written.
-- counter := max(last + 1, server TIME in microseconds) + tokens - 1; with a proposal (not '0') that in place of the
-- time: where several servers number one lock, all must be given the same. Because of the time, a token after the loss
-- of the counter (FLUSHALL, DEL, expiry, a restart without disk) is still larger than all before.
-- keep: ttl in ms, as text; '0' for none. Then the ttl that an earlier setting left is removed: the counter would expire
-- while in use, and Java's INCR would start again at 1. For the same reason a counter without a ttl, which is Java's,
-- never gets one.
-- The number is written by %.0f: Lua's own conversion would write 1.79e+15, which no INCR could read.
local function raise_counter(key, tokens, keep, proposal)
    local call = redis.call
    local last = call('GET', key)
    local time = call('TIME')
    local now = time[1] * 1000000 + time[2]
    local token = proposal == '0' and now or tonumber(proposal)
    if last then
        local following = (tonumber(last) or 0/0) + 1  -- 0/0: a text that is not a number must not be taken for a small number
        if not (token >= following) then token = following end
    end
    token = token + (tokens - 1)  -- in this order: 2^53 + 1 - 1 would be less than 2^53
    if not (token < 9007199254740992) then
        return nil, redis.error_reply('HOLDFAST the fencing counter is not a number, or has reached 2^53')
    end
    token = string.format('%.0f', token)
    if keep == '0' then
        call('SET', key, token)
    elseif not last then
        call('SET', key, token, 'PX', keep)
    else
        call('SET', key, token, 'KEEPTTL')
        -- The counter's value is the time of its last grant: so the first grant in each thirtieth of its ttl refreshes
        -- the ttl, and the others need not look.
        local part = keep * 1000 / 30
        if math.floor(last / part) ~= math.floor(now / part) then
            local left = call('PTTL', key)
            if left >= 0 and left < tonumber(keep) then call('PEXPIRE', key, keep) end
        end
    end
    return token, time[1] .. '.' .. string.sub('00000' .. time[2], -6)
end

