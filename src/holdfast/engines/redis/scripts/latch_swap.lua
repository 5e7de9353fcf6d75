-- Write the register of a latch, if the version is the expected one, and its count for Java.
--
-- KEYS     1 register  2 waiters present  3 count, RCountDownLatch
-- ARGV     1 version  2 value  3 ttl of the register, ms ('0': none)  4 how to publish  5 channel of RCountDownLatch
-- Returns  as swap.lua. A string that is no number is refused.
--
-- Idempotent: a repeat finds another version, and changes nothing. So does a request that was sent before Java's last
-- change. Java's waiters are woken when the count is gone, and their gate is closed when there is one again.

-- include register publish latch
local register, count, ttl = KEYS[1], KEYS[3], ARGV[3]
local problem = adopt(register, count, ttl)
if problem then return problem end
local version = redis.call('HMGET', register, 'version')[1]
if (version or '0') ~= ARGV[1] then
    keep_read(register, ttl)
    return content(register, KEYS[2])
end
local left = cjson.decode(ARGV[2])[3]
local text, before, is_new = left > 0 and string.format('%.0f', left) or '', redis.call('GET', count) or '', not version
local following = string.format('%.0f', tonumber(ARGV[1]) + 1)
redis.call('HSET', register, 'value', ARGV[2], 'version', following, 'shared', text)
problem = keep(register, ttl, is_new)
if problem then return problem end
if text == '' then
    if redis.call('DEL', count) == 1 then publish(ARGV[5], ARGV[4], '0') end
elseif text ~= before then
    if ttl == '0' or redis.call('PTTL', count) == -1 then
        redis.call('SET', count, text)
    else
        redis.call('SET', count, text, 'PX', string.format('%.0f', 2 * ttl))
    end
    if before == '' then publish(ARGV[5], ARGV[4], '1') end
end
return content(register, KEYS[2])
