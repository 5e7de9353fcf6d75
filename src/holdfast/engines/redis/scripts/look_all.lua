-- Tell several waiters of one client how they stand in the queue of a register. They are present from here on.
--
-- KEYS     1 register  2 waiters present  3 registers with waiters (absent: it is not listed there)
-- ARGV     1 for how long they are present, ms  2 ttl of the register, ms ('0': none)
--          3 which queue the client has been given before, without a waiter that was notified ('': none)  4… waiters
-- Returns  which queue it is, if it is that one (see register.lua); else which queue it is ('' if a waiter in it was
--          notified), its text, and the waiters that are present ({} if none was notified).
--
-- Idempotent. The client finds the place of each waiter in the text. Nearly always it has been given the text before.

-- include register
local register, present = KEYS[1], KEYS[2]
if keep_read(register, ARGV[2]) then list(KEYS[3], register, ARGV[2], true) end
local now = server_time()
local last = string.format('%.0f', now + ARGV[1])
local added = 0
for first = 4, #ARGV, 1000 do  -- unpack() has a limit
    local members = {}
    for i = first, math.min(first + 999, #ARGV) do
        members[#members + 1] = last
        members[#members + 1] = ARGV[i]
    end
    added = added + redis.call('ZADD', present, unpack(members))
end
local problem = expire(present, string.format('%.0f', 2 * ARGV[1]), added == #ARGV - 3)
if problem then return problem end

local queued = redis.call('HMGET', register, 'queued')[1]
if not queued then return {'', '', {}} end
if queued == ARGV[3] then return queued end
local queue = redis.call('HMGET', register, 'queue')[1] or ''
if not string.find(queue, ':N', 1, true) then return {queued, queue, {}} end
return {'', queue, redis.call('ZRANGEBYSCORE', present, string.format('(%.0f', now), '+inf')}
