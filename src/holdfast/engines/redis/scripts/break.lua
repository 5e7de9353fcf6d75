-- Take the lock from its holder.
--
-- KEYS     1 lock  2 fencing counter  3 holder's metadata  [4 what tombstones begin with]
-- ARGV     1 channel  2 how to publish  3 ttl of the counter, ms (0: none)  4 token ('': any)  5 owner ('': any)
--          6 permits that are out (a semaphore's)  [7 shortest ttl of a tombstone, ms]
-- Returns  1 if the lock was held and is broken, else 0. -1: the name is a semaphore's.
--
-- Idempotent with a token or an owner: with a token, only a lock whose one holder has it in its block is broken; with an
-- owner, only a lock that it holds alone. Without either a repeat breaks whatever lock it finds. A hash that is not a
-- lock is refused before anything is written. The counter is raised, so that a fence which learns the new number refuses
-- the old holder.

-- include raise_counter publish fair_head owners
local holders, problem = owners(KEYS[1])
if not holders then return problem end
-- pcall: a user of locks alone may lack the right to look there.
if #holders == 0 then return redis.pcall('EXISTS', ARGV[6]) == 1 and -1 or 0 end
for i = 1, #holders, 2 do
    if holders[i] == 'mode' then return redis.error_reply('HOLDFAST KIND rwlock') end
end
if ARGV[4] ~= '' then
    local last, tokens, owner = string.match(redis.call('GET', KEYS[3]) or '', '^(%d+) (%d+) [%d.]+ (%S+) ')
    if #holders > 2 or holders[1] ~= owner then return 0 end
    local token = tonumber(ARGV[4])
    if token > tonumber(last) or token <= last - tokens then return 0 end
end
if ARGV[5] ~= '' and (#holders > 2 or holders[1] ~= ARGV[5]) then return 0 end
local token
token, problem = raise_counter(KEYS[2], 1, ARGV[3], '0')
if not token then return problem end
if KEYS[4] then
    -- One of several servers: others, at which the lock is not broken yet, may just have confirmed a renewal. The holder
    -- would then join here again.
    local ttl = math.max(2 * redis.call('PTTL', KEYS[1]), tonumber(ARGV[7]))
    for i = 1, #holders, 2 do
        redis.call('SET', KEYS[4] .. ':gone:' .. holders[i], '1', 'PX', string.format('%.0f', ttl))
    end
end
redis.call('DEL', KEYS[1], KEYS[3])
publish(ARGV[1], ARGV[2], '0')
wake_fair_head(ARGV[1], ARGV[2])
return 1
