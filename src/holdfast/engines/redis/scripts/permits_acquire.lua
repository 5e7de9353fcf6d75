-- Take permits of a semaphore for one claim: all of them or none.
--
-- KEYS     1 free permits (string)  2 permits that are out (sorted set)  3 facts about the holders (hash)  4 queue
--          5 what tombstones begin with  [6 key of this claim's waiter]
-- ARGV     1 owner  2 ttl ms  3 how many permits  4 size, if there is no such semaphore (0: any number)
--          5 description of the holder (JSON)  6 ttl of the semaphore, ms (0: none)  7 channel
--          8 how to publish  [9 waiter]
-- Returns  token and size: granted. nil and size: the semaphore never has so many; the waiter was removed. Number: busy.
--
-- Granted if enough are free and no live waiter is before this claim: so that a large claim is served, too. The number
-- of free permits may be gone (evicted): it is size - out then. Permits expire by the server's clock, a second later
-- than asked for: Redisson compares them with the clocks of its clients, which may be fast.
-- A token is no fence here, where several have permits: it is the server's time, and names the grant.
-- Idempotent per claim: a repeat that finds its own permits extends them, never shortens, and returns the same token. A
-- late duplicate of a claim that was released or withdrawn finds its tombstone.
local call, out, owner, keep = redis.call, KEYS[2], ARGV[1], ARGV[6]
local wanted = tonumber(ARGV[3])

local function leave_queue()
    if KEYS[6] then
        call('DEL', KEYS[6])
        call('LREM', KEYS[4], 1, ARGV[9])
    end
end

-- The next waiter may be served, too. One that tracks keys is woken by the end of this one's.
local function wake_next(free)
    if KEYS[6] and free > 0 and call('LLEN', KEYS[4]) > 0 then publish(ARGV[7], ARGV[8], string.format('%.0f', free)) end
end

local free, problem = number_of(KEYS[1])
if problem then return problem end
if call('EXISTS', KEYS[5] .. ':gone:' .. owner) == 1 then return -1 end
local time = call('TIME')
local token = string.format('%.0f', time[1] * 1000000 + time[2])
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local expires = now + ARGV[2] + 1000
local ids = permit_ids(owner, wanted)
local held, reclaimed = call('ZCARD', out), 0
if held > 0 then
    local current, ours = scores(out, ids)
    if ours == wanted then
        for i = 1, wanted do
            if expires > tonumber(current[i]) then call('ZADD', out, string.format('%.0f', expires), ids[i]) end
        end
        leave_queue()
        -- If its facts are gone: no reply can have carried the token, so a new one is as good.
        local first = string.match(call('HGET', KEYS[3], owner) or '', '^(%d+) ')
        return {first or token, free and free + held or 0}
    end
    reclaimed = reclaim(out, now)
    held = held - reclaimed
end
local limited, size = free or ARGV[4] ~= '0', 0
if limited then
    local known = free
    free = known and known + reclaimed or ARGV[4] - held
    size = free + held
    if free ~= known then write_free(KEYS[1], free, out, keep) end
    if wanted > size then
        leave_queue()
        wake_next(free)
        return {false, size}
    end
    if free < wanted or not is_next(KEYS[4], ARGV[9]) then
        if reclaimed > 0 and free > 0 then publish(ARGV[7], ARGV[8], string.format('%.0f', free)) end
        return -1
    end
end

leave_queue()

-- A refusal between two commands (an ACL without one of them) must neither lose permits nor leave a key without a TTL.
local function take()
    if limited then
        write_free(KEYS[1], free - wanted, out, keep)
    elseif keep ~= '0' then
        call('PEXPIRE', out, keep)
    end
    local lasts = math.max(held > 0 and call('PTTL', KEYS[3]) or 0, ARGV[2] + 1000)
    local since = time[1] .. '.' .. string.sub('00000' .. time[2], -6)
    call('HSET', KEYS[3], owner, token .. ' ' .. since .. ' ' .. wanted .. ' ' .. ARGV[5])
    call('PEXPIRE', KEYS[3], lasts)
end

local score, members = string.format('%.0f', expires), {}
for i = 1, wanted do
    members[2 * i - 1] = score
    members[2 * i] = ids[i]
end
each_chunk(members, function(...) call('ZADD', out, ...) end)
local done, failure = pcall(take)
if not done then
    each_chunk(ids, function(...) redis.pcall('ZREM', out, ...) end)
    if limited then pcall(write_free, KEYS[1], free, out, keep) end
    redis.pcall('HDEL', KEYS[3], owner)
    return type(failure) == 'table' and failure or redis.error_reply(tostring(failure))
end
if limited then wake_next(free - wanted) end
return {token, size}
