-- Take permits of a semaphore for one claim: all of them or none.
--
-- KEYS     1 free permits (string)  2 permits that are out (sorted set)  3 facts about the holders (hash)  4 queue
--          5 what tombstones begin with  6 counter, for ids of grants  [7 key of this claim's waiter]
-- ARGV     1 owner  2 ttl ms  3 how many permits  4 size, if there is no such semaphore (0: any number)
--          5 description of the holder (JSON)  6 ttl of semaphore and counter, ms (0: none)  7 channel
--          8 how to publish  [9 waiter]
-- Returns  token and size: granted. nil and size: the semaphore never has so many; the waiter was removed. Number: busy.
--
-- Granted if enough are free and no live waiter is before this claim: so that a large claim is served, too. The number
-- of free permits may be gone (evicted): it is size - out then. Permits expire by the server's clock, a second later
-- than asked for: Redisson compares them with the clocks of its clients, which may be fast.
-- Idempotent per claim: a repeat that finds its own permits extends them, never shortens, and returns the same token. A
-- late duplicate of a claim that was released or withdrawn finds its tombstone.
local call, out, owner, keep = redis.call, KEYS[2], ARGV[1], ARGV[6]
local wanted = tonumber(ARGV[3])

local function leave_queue()
    if KEYS[7] then
        call('DEL', KEYS[7])
        call('LREM', KEYS[4], 1, ARGV[9])
    end
end

local free, problem = number_of(KEYS[1])
if problem then return problem end
if call('EXISTS', KEYS[5] .. ':gone:' .. owner) == 1 then return -1 end
local now = server_ms()
local expires = now + ARGV[2] + 1000
local ids = permit_ids(owner, wanted)
local current, ours = scores(out, ids)
if ours == wanted then
    for i = 1, wanted do
        if expires > tonumber(current[i]) then call('ZADD', out, string.format('%.0f', expires), ids[i]) end
    end
    leave_queue()
    local token = string.match(call('HGET', KEYS[3], owner) or '', '^(%d+) ')
    if not token then
        -- Its facts are gone. No reply can have carried the token, so a new one is as good.
        token, problem = raise_counter(KEYS[6], 1, keep, '0')
        if not token then return problem end
    end
    return {token, free and free + call('ZCARD', out) or 0}
end

local reclaimed = reclaim(out, now)
local held = call('ZCARD', out)
local limited, size = free or ARGV[4] ~= '0', 0
if limited then
    local known = free
    free = known and known + reclaimed or ARGV[4] - held
    size = free + held
    if free ~= known then write_free(KEYS[1], free, out, keep) end
    if wanted > size then
        leave_queue()
        return {false, size}
    end
    if free < wanted or not is_next(KEYS[4], ARGV[9]) then
        if reclaimed > 0 and free > 0 then publish(ARGV[7], ARGV[8], string.format('%.0f', free)) end
        return -1
    end
end

local token, time = raise_counter(KEYS[6], 1, keep, '0')
if not token then return time end
leave_queue()

-- A refusal between two commands (an ACL without one of them) must neither lose permits nor leave a key without a TTL.
local function take()
    if limited then
        write_free(KEYS[1], free - wanted, out, keep)
    elseif keep ~= '0' then
        call('PEXPIRE', out, keep)
    end
    local lasts = math.max(call('PTTL', KEYS[3]), ARGV[2] + 1000)
    call('HSET', KEYS[3], owner, token .. ' ' .. time .. ' ' .. wanted .. ' ' .. ARGV[5])
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
if limited then free = free - wanted end
if KEYS[7] and limited and free > 0 and call('LLEN', KEYS[4]) > 0 then
    -- The next waiter may be served, too. One that tracks keys is woken by the end of this one's.
    publish(ARGV[7], ARGV[8], string.format('%.0f', free))
end
return {token, size}
