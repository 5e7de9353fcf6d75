-- Take the lock from its holder.
--
-- KEYS     1 lock  2 fencing counter  3 holder's metadata  [4 what tombstones begin with]
-- ARGV     1 channel  2 how to publish  3 ttl of the counter, ms (0: none)  [4 shortest ttl of a tombstone, ms]
-- Returns  1 if it was held, else 0.
--
-- The counter is raised, so that a guard which learns the new number refuses the old holder. Not idempotent by nature:
-- a repeat breaks whatever lock it finds. What is not a lock is refused before anything is written.
local holders, problem = owners(KEYS[1])
if not holders then return problem end
if #holders == 0 then return 0 end
local token
token, problem = raise_counter(KEYS[2], 1, ARGV[3], '0')
if not token then return problem end
if KEYS[4] then
    -- One of several servers: a renewal that others have just confirmed, who are not broken yet, would let the holder
    -- join here again.
    local ttl = math.max(2 * redis.call('PTTL', KEYS[1]), tonumber(ARGV[4]))
    for i = 1, #holders, 2 do
        redis.call('SET', KEYS[4] .. ':gone:' .. holders[i], '1', 'PX', string.format('%.0f', ttl))
    end
end
redis.call('DEL', KEYS[1], KEYS[3])
publish(ARGV[1], ARGV[2])
return 1
