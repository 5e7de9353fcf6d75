-- Take a read-write lock for one claim, to read or to write.
--
-- KEYS     1 lock (hash: mode, owner -> 1, owner:write -> 1)  2 fencing counter  3 facts about the holders (hash)
--          4 queue (list of waiters)  5 what tombstones begin with  6 time-out key of this reader
--          [7 key of this claim's waiter]
-- ARGV     1 owner  2 ttl ms  3 'read' or 'write'  4 description of the holder (JSON)  5 ttl of the counter, ms (0: none)
--          [6 to read inside one's own write: that owner's field, else ''  7 waiter]
-- Returns  text: granted, the token. Number: busy, the lock's PTTL (-1: it has none; -2: the lock is free, but not for
--          this claim).
--
-- A claim is granted if no conflicting one holds the lock or is queued, alive, before it. A read inside one's own write
-- passes all of them. A writer gets a new token, a reader the last one.
-- Idempotent per claim: a repeat that finds its own field extends the lease, never shortens it, and returns the same
-- token. A late duplicate of a claim that was released or withdrawn finds its tombstone.

local call, pcall, lock, owner, ttl = redis.call, redis.pcall, KEYS[1], ARGV[1], ARGV[2]
local reading, waiter = ARGV[3] == 'read', ARGV[7]
local field = reading and owner or owner .. ':write'
local tombstone = KEYS[5] .. ':gone:' .. owner

local left, mode, ours, nested = -2
-- One command for all of these keys: of a free lock that no caller waits for none exists.
if call('EXISTS', lock, tombstone, KEYS[4]) ~= 0 then
    left = call('PTTL', lock)
    if call('EXISTS', tombstone) == 1 then return left end
    if left ~= -2 then
        -- The first command that fails on a key of another type (WRONGTYPE): nothing is written by then.
        local found = call('HMGET', lock, 'mode', field, ARGV[6] or '')
        mode, ours, nested = found[1], found[2], reading and found[3]
        if not mode then return redis.error_reply('HOLDFAST KIND lock') end
        if not (ours or nested or (reading and mode == 'read')) then return left end
    end
    if reading and not (ours or nested) then
        -- Not before a writer that waits.
        for _, each in ipairs(call('LRANGE', KEYS[4], 0, 9999)) do
            if each == waiter then break end
            if string.sub(each, 1, 1) ~= 'r' then
                if call('EXISTS', KEYS[4] .. ':' .. each) == 1 then return left end
                call('LREM', KEYS[4], 1, each)
            end
        end
    elseif not (ours or nested) then
        -- include turn
        if not is_next(KEYS[4], waiter) then return left end
    end
end

local token, time
if ours then token = string.match(call('HGET', KEYS[3], owner) or '', '^(%d+) ') end
if not token and reading then
    token = call('GET', KEYS[2])
    if token then
        local now = call('TIME')
        local micros = now[2]
        if #micros < 6 then micros = string.sub('00000' .. micros, -6) end
        time = now[1] .. '.' .. micros
    end
end
if not token then
    -- include next_token
    token, time = next_token(KEYS[2], '1', ARGV[5])
    if not token then return time end
end
if KEYS[7] then
    call('DEL', KEYS[7])
    call('LREM', KEYS[4], 1, waiter)
end

if ours then
    if reading then ttl = math.max(ttl, call('PTTL', KEYS[6])) end
elseif mode then
    call('HSET', lock, field, '1')
else
    call('HSET', lock, 'mode', ARGV[3], field, '1')
end
-- A refusal between two commands (an ACL without PEXPIRE) must leave neither a hold nor a key without a TTL.
local lasts = left == -2 and ttl or math.max(left, ttl)
local reply = pcall('PEXPIRE', lock, lasts)
local done = reply == 1
if done and reading then
    reply = pcall('SET', KEYS[6], '1', 'PX', ttl)
    done = reply.ok
end
if done and time then
    reply = pcall('HSET', KEYS[3], owner, token .. ' ' .. time .. ' ' .. ARGV[4])
    done = type(reply) == 'number'
end
if done then
    reply = pcall('PEXPIRE', KEYS[3], lasts)
    if type(reply) == 'number' then return token end
end
if mode then
    pcall('HDEL', lock, field)
elseif type(pcall('DEL', lock)) ~= 'number' then
    pcall('SET', lock, '', 'PX', '1')
end
pcall('DEL', KEYS[6])
pcall('HDEL', KEYS[3], owner)
return reply
