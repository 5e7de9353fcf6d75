-- Write the value of a register without a guard, if the version is the expected one.
--
-- KEYS     1 register  2 waiters present
-- ARGV     1 version  2 value  3 ttl of the register, ms ('0': none)  4 how to publish
-- Returns  value, queue, version, waiters that are present: as they are afterwards.
--
-- Idempotent: a repeat finds another version, and changes nothing.

-- include register publish
local register = KEYS[1]
local version = redis.call('HMGET', register, 'version')[1]
if (version or '0') == ARGV[1] then
    local is_new = redis.call('EXISTS', register) == 0
    redis.call('HSET', register, 'value', ARGV[2], 'version', string.format('%.0f', tonumber(ARGV[1]) + 1))
    local problem = keep(register, ARGV[3], is_new)
    if problem then return problem end
    publish(register, ARGV[4], '0')
else
    keep_read(register, ARGV[3])
end
return content(register, KEYS[2])
