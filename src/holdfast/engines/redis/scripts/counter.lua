-- Put before the scripts that write fencing counters.
--
-- write_counter(key, last, token, keep) writes ``token``; ``last`` is what was read. keep: ttl in ms, as text; '0' for none.
-- Without a ttl, one that an earlier setting left is removed: the counter would expire while in use, and Java's INCR would
-- start again at 1. With one, a counter that has none is Java's and never gets one, for the same reason.
-- raise_to(key, token, keep) makes the counter at least ``token``.
local function write_counter(key, last, token, keep)
    if keep == '0' then
        redis.call('SET', key, token)
    elseif last then
        redis.call('SET', key, token, 'KEEPTTL')
    else
        redis.call('SET', key, token, 'PX', keep)
    end
end

local function raise_to(key, token, keep)
    local last = redis.call('GET', key)
    if (tonumber(last or '') or 0) < tonumber(token) then
        write_counter(key, last, token, keep)
    elseif keep == '0' then
        write_counter(key, last, last, keep)
    end
end

