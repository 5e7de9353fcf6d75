-- Included by the scripts that use registers.
--
-- A register is a hash: value, queue, version; token and owner of the last guard; queued: the token and the version of
-- the store that wrote the queue, which no other queue has, not even after the register was lost and written anew. The
-- waiters are in a sorted set beside it: waiter -> until when it is present, in ms of the server's clock.
--
-- The first write of a script is one that is refused when the server has no memory: so nothing has happened then. A TTL
-- that is refused (an ACL without PEXPIRE) must leave no key without one: a new key is removed again, and the refusal
-- returned.
local function expire(key, ttl, is_new)
    local reply = redis.pcall('PEXPIRE', key, ttl)
    if type(reply) == 'number' or not is_new then return nil end
    if type(redis.pcall('DEL', key)) ~= 'number' then redis.pcall('SET', key, '', 'PX', '1') end
    return reply
end

-- keep(register, ttl, is_new): it is in use, so its ttl begins anew ('0': it never expires). Returns nil, or a refusal.
local function keep(register, ttl, is_new)
    if ttl ~= '0' then return expire(register, ttl, is_new) end
end

-- keep_read(register, ttl): the same where it is only read. Every write wakes those that watch the register, so this
-- one is made in the last 29 thirtieths of the ttl only. Returns whether it was made.
local function keep_read(register, ttl)
    if ttl == '0' then return false end
    local left = redis.call('PTTL', register)
    if left < 0 or left >= ttl * 29 / 30 then return false end
    return redis.call('PEXPIRE', register, ttl) == 1
end

local function server_time()
    local time = redis.call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- list(queues, register, ttl, is_waited_for): the registers of a lock that have waiters are listed for inspect, each
-- until its ttl is over. queues: sorted set, what follows it in the key of a register -> until when, ms; nil: the
-- register is not listed. It is for people, so it never fails a script.
local function list(queues, register, ttl, is_waited_for)
    if not queues then return end
    local now = server_time()
    local last = ttl == '0' and '+inf' or string.format('%.0f', now + ttl)
    local added = redis.pcall('ZADD', queues, is_waited_for and last or '0', string.sub(register, #queues + 1))
    if type(added) ~= 'number' then return end
    redis.pcall('ZREMRANGEBYSCORE', queues, '-inf', string.format('%.0f', now))
    keep(queues, ttl, added == 1)
end

-- left(register, owner): the key that tells a holder, for so many ms, which version its register had when a holder of
-- another client took over. One that has stored and released in one step may have lost the reply.
local LEFT_MS = '30000'
local function left(register, owner) return register .. ':left:' .. owner end

-- attend(present, waiter, now, lasting): the waiter is present for so many ms. Returns nil, or a refusal.
local function attend(present, waiter, now, lasting)
    local added = redis.call('ZADD', present, string.format('%.0f', now + lasting), waiter)
    return expire(present, string.format('%.0f', 2 * lasting), added == 1)
end

local function present_now(present)
    return redis.call('ZRANGEBYSCORE', present, string.format('(%.0f', server_time()), '+inf')
end

-- content(register, present): what a reader is given.
local function content(register, present)
    local found = redis.call('HMGET', register, 'value', 'queue', 'version')
    return {found[1] or '', found[2] or '', found[3] or '0', present_now(present)}
end

