-- Take permits of a semaphore for one claim: all of them or none.
--
-- KEYS     1 free permits (string)  2 permits that are out (sorted set)  3 facts about the holders (hash)  4 queue
--          5 what tombstones begin with  [6 key of this claim's waiter]
-- ARGV     1 owner  2 how long they are out, ms  3 how many permits  4 size, if there is no such semaphore (0: any
--          number)  5 description of the holder (JSON)  6 ttl of the semaphore, ms (0: none)  7 how to publish
--          [8 waiter]
-- Returns  token and size: granted. nil and size: the semaphore never has so many; the waiter was removed. Number: busy.
--
-- Granted if enough are free and no live waiter is before this claim: so that a large claim is served, too. The number
-- of free permits may be gone (evicted): it is size - out then. Permits expire by the server's clock.
-- A token is no fence here, where several have permits: it is the server's time, and names the grant.
-- Idempotent per claim: a repeat that finds its own permits extends them, never shortens, and returns the same token. A
-- late duplicate of a claim that was released or withdrawn finds its tombstone.

-- include permits_ids permits_free
local call, out, owner, keep = redis.call, KEYS[2], ARGV[1], ARGV[6]
local wanted = tonumber(ARGV[3])
local leave_queue, wake_next
if KEYS[6] then
    -- include publish
    local channel = 'redisson_sc' .. string.sub(KEYS[5], 14)
    leave_queue = function()
        call('DEL', KEYS[6])
        call('LREM', KEYS[4], '1', ARGV[8])
    end
    -- The next waiter may be served, too. One that tracks keys is woken by the end of this one's.
    wake_next = function(free)
        if free > 0 and call('LLEN', KEYS[4]) > 0 then publish(channel, ARGV[7], string.format('%.0f', free)) end
    end
end

local free, problem = number_of(KEYS[1])
if problem then return problem end
local time = call('TIME')
local micros = time[2]
if #micros < 6 then micros = string.sub('00000' .. micros, -6) end
local token, now = time[1] .. micros, time[1] * 1000 + math.floor(time[2] / 1000)
local expires = now + ARGV[2]
local ids = permit_ids(owner, wanted)
local held, reclaimed, awaited = 0, 0, false
local tombstone = KEYS[5] .. ':gone:' .. owner
-- One command for all of these keys: of an idle semaphore none exists.
if call('EXISTS', tombstone, KEYS[4], out, KEYS[3]) > 0 then
    awaited = call('EXISTS', tombstone, KEYS[4]) > 0
    if awaited and call('EXISTS', tombstone) == 1 then return -1 end
    -- include permits_out permits_facts
    held = call('ZCARD', out)
    if held == 0 then held = restore(KEYS[1], out, KEYS[3], now) end
    if held > 0 then
        local current, ours, present = scores(out, ids, now)
        if ours == wanted then
            for i = 1, wanted do
                if expires > tonumber(current[i]) then call('ZADD', out, string.format('%.0f', expires), ids[i]) end
            end
            if leave_queue then leave_queue() end
            -- If its facts are gone: no reply can have carried the token, so a new one is as good.
            local first = string.match(call('HGET', KEYS[3], owner) or '', '^(%d+) ')
            prolong(KEYS[3], owner, math.max(expires, tonumber(current[1])))
            return {first or token, free and free + held or 0}
        end
        if present > 0 then
            -- Of an earlier transmission, and some are gone or have expired: all are given back, and taken anew.
            each_chunk(ids, function(...) reclaimed = reclaimed + call('ZREM', out, ...) end)
            redis.pcall('HDEL', KEYS[3], owner)
        end
        reclaimed = reclaimed + reclaim(out, now)
        held = held - reclaimed
        if reclaimed > 0 then forget_dead(KEYS[3], held, now) end
    end
end
local limited, size = free or ARGV[4] ~= '0', 0
if limited then
    local known = free
    free = known and known + reclaimed or ARGV[4] - held
    size = free + held
    if free ~= known then write_free(KEYS[1], free, out, keep) end
    if wanted > size then
        if leave_queue then
            leave_queue()
            wake_next(free)
        end
        return {false, size}
    end
    local waits = free < wanted
    if awaited and not waits then
        -- include turn
        waits = not is_next(KEYS[4], ARGV[8])
    end
    if waits then
        if reclaimed > 0 and free > 0 then
            -- include publish
            publish('redisson_sc' .. string.sub(KEYS[5], 14), ARGV[7], string.format('%.0f', free))
        end
        return -1
    end
end

if leave_queue then leave_queue() end

-- A refusal between two commands (an ACL without one of them) must neither lose permits nor leave a key without a TTL.
local score = string.format('%.0f', expires)
local function take()
    if limited then
        local left = call('PTTL', KEYS[1])
        if left == -1 or (keep ~= '0' and left > keep * 29 / 30) then
            -- It has no ttl, or one that is refreshed once in each thirtieth of it.
            call('INCRBY', KEYS[1], '-' .. ARGV[3])
            if left > 0 and held == 0 then call('PEXPIRE', out, keep) end
        else
            write_free(KEYS[1], free - wanted, out, keep)
        end
    elseif keep ~= '0' then
        call('PEXPIRE', out, keep)
    end
    local lasts = ARGV[2]
    if held > 0 then lasts = math.max(lasts, call('PTTL', KEYS[3])) end
    local counts = ARGV[3] .. ' ' .. string.format('%.0f', size) .. ' ' .. score
    call('HSET', KEYS[3], owner, token .. ' ' .. time[1] .. '.' .. micros .. ' ' .. counts .. ' ' .. ARGV[5])
    call('PEXPIRE', KEYS[3], lasts)
end

if wanted == 1 then
    call('ZADD', out, score, ids[1])
else
    local members = {}
    for i = 1, wanted do
        members[2 * i - 1] = score
        members[2 * i] = ids[i]
    end
    each_chunk(members, function(...) call('ZADD', out, ...) end)
end
local done, failure = pcall(take)
if not done then
    each_chunk(ids, function(...) redis.pcall('ZREM', out, ...) end)
    if limited then pcall(write_free, KEYS[1], free, out, keep) end
    redis.pcall('HDEL', KEYS[3], owner)
    return type(failure) == 'table' and failure or redis.error_reply(tostring(failure))
end
if wake_next and limited then wake_next(free - wanted) end
return {token, size}
