-- Take the lock for one claim, as nearly every acquire does: it is free, and its counter is in order. acquire.lua does
-- the same, and all that this leaves to it.
--
-- KEYS     1 lock (hash, owner -> count)  2 fencing counter  3 holder's metadata  4 what tombstones begin with
-- ARGV     1 owner  2 ttl ms  3 owner and description of the holder  4 ttl of the counter, ms (0: none)  5 how many
--          leading digits of the counter tell when its ttl was refreshed  [6 proposal for the counter]
-- Returns  text: granted, the token. Number: busy, the lock's PTTL (-1: it has none). -3: nothing was done, ask
--          acquire.lua.
--
-- A repeat finds its own field, and leaves the answer to acquire.lua. The token is the proposal, where several servers
-- number one lock, else the server's time in microseconds. It has 16 digits until the year 2286, so texts compare as
-- numbers. SET tells the value before; if that is not below the token, or no number, it is put back.

-- include take
local call, lock, owner, keep = redis.call, KEYS[1], ARGV[1], ARGV[4]
if call('EXISTS', lock, KEYS[4] .. ':gone:' .. owner, KEYS[4] .. ':yield') ~= 0 then
    if call('HEXISTS', lock, 'mode') == 1 or call('HEXISTS', lock, owner) == 1 then return -3 end
    local left = call('PTTL', lock)
    return left == -2 and -3 or left
end
local seconds, micros
if ARGV[6] then
    seconds, micros = string.sub(ARGV[6], 1, 10), string.sub(ARGV[6], 11)
else
    local time = call('TIME')
    seconds, micros = time[1], string.sub('00000' .. time[2], -6)
end
local token = seconds .. micros
if keep == '0' then
    local last = call('SET', KEYS[2], token, 'GET')
    if last and (#last ~= 16 or last >= token) then
        call('SET', KEYS[2], last)
        return -3
    end
else
    local last = call('SET', KEYS[2], token, 'KEEPTTL', 'GET')
    if not last then
        call('PEXPIRE', KEYS[2], keep)
    elseif #last ~= 16 or last >= token then
        call('SET', KEYS[2], last, 'KEEPTTL')
        return -3
    elseif string.sub(last, 1, ARGV[5]) ~= string.sub(token, 1, ARGV[5]) then
        local left = call('PTTL', KEYS[2])
        if left >= 0 and left < tonumber(keep) then call('PEXPIRE', KEYS[2], keep) end
    end
end
return take(lock, owner, ARGV[2], KEYS[3], token .. ' 1 ' .. seconds .. '.' .. micros .. ' ' .. ARGV[3]) or token
