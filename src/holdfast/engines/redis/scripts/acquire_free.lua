-- Take the lock for one claim, as nearly every acquire does: it is free, and its counter is in order. acquire.lua does
-- the same, and all that this leaves to it.
--
-- KEYS     1 lock (hash, owner -> count)  2 fencing counter  3 holder's metadata  4 what tombstones begin with
-- ARGV     1 owner  2 ttl ms  3 description of the holder (JSON)  4 ttl of the counter, ms (0: none)  [5 proposal for the
--          counter]
-- Returns  text: granted, the token. Number: busy, the lock's PTTL (-1: it has none). -3: nothing was done, ask
--          acquire.lua.
--
-- A repeat finds its own field, and leaves the answer to acquire.lua. The token is the proposal, where several servers
-- number one lock, else the server's time in microseconds. It has 16 digits until the year 2286, so texts compare as
-- numbers. SET tells the value before; if that is not below the token, or no number, it is put back. The ttl of the
-- counter is refreshed as in next_token.lua.

local call, lock, owner, counter, keep = redis.call, KEYS[1], ARGV[1], KEYS[2], ARGV[4]
if call('EXISTS', lock, KEYS[4] .. ':gone:' .. owner, KEYS[4] .. ':yield') ~= 0 then
    if call('HEXISTS', lock, 'mode') == 1 or call('HEXISTS', lock, owner) == 1 then return -3 end
    local left = call('PTTL', lock)
    return left == -2 and -3 or left
end
local seconds, micros
if ARGV[5] then
    seconds, micros = string.sub(ARGV[5], 1, 10), string.sub(ARGV[5], 11)
else
    local time = call('TIME')
    seconds, micros = time[1], time[2]
    if #micros < 6 then micros = string.sub('00000' .. micros, -6) end
end
local token = seconds .. micros
if keep == '0' then
    local last = call('SET', counter, token, 'GET')
    if last and (#last ~= 16 or last >= token) then
        call('SET', counter, last)
        return -3
    end
else
    local last = call('SET', counter, token, 'KEEPTTL', 'GET')
    if not last then
        call('SET', counter, token, 'PX', keep)  -- not PEXPIRE: an ACL may lack that, and a ttl is never added later
    elseif #last ~= 16 or last >= token then
        call('SET', counter, last, 'KEEPTTL')
        return -3
    elseif last < string.sub(token, 1, 16 - #keep) then
        local left = call('PTTL', counter)
        if left >= 0 and left < tonumber(keep) then call('PEXPIRE', counter, keep) end
    end
end
-- include take
local about = token .. ' 1 ' .. seconds .. '.' .. micros .. ' ' .. owner .. ' ' .. ARGV[3]
return take(lock, owner, ARGV[2], KEYS[3], about) or token
