-- Write a register, if guard and version are still those of the last load.
--
-- KEYS     1 register  2 waiters present  3 what keys of wake-ups begin with  4 registers with waiters (absent: it is not
--          listed there)
-- ARGV     1 token  2 owner  3 version  4 ttl of the register, ms ('0': none)  5 '1': write in any case
--          6 value  7 '1': write it  8 queue  9 '1': write it  10 waiter that joins ('': none)
--          11 for how long it is present, ms  12 ttl of a wake-up, ms  13 how to publish  14… waiters to be woken
-- Returns  the new version, a number; or, refused: token of the guard that it has, version.
--
-- Idempotent: a repeat finds another version and is refused; it writes nothing but, for WAIT, the guard as it is. Without
-- a write, WAIT would ask about an older one, which a replica that is cut off since may have acknowledged.
-- A wake-up is a key with a new value, whose change is pushed; and a message. It is optional, so it never fails a store.

-- include register publish
local register = KEYS[1]
local found = redis.call('HMGET', register, 'token', 'owner', 'version')
local version = found[3] or '0'
local ours = found[1] == ARGV[1] and found[2] == ARGV[2]
if not ours or version ~= ARGV[3] then
    if ours and ARGV[5] == '1' then redis.call('HSET', register, 'owner', ARGV[2]) end
    return {found[1] or '0', version}
end
if ARGV[10] ~= '' then
    local now = server_time()
    local problem = attend(KEYS[2], ARGV[10], now, tonumber(ARGV[11]))
    if problem then return problem end
    redis.pcall('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now))
end
local following = tonumber(version) + 1
local changes = {'version', string.format('%.0f', following)}
if ARGV[7] == '1' then changes[3], changes[4] = 'value', ARGV[6] end
if ARGV[9] == '1' then
    for _, word in ipairs({'queue', ARGV[8], 'queued', ARGV[1] .. '.' .. changes[2]}) do changes[#changes + 1] = word end
end
redis.call('HSET', register, unpack(changes))
keep(register, ARGV[4], false)
if ARGV[9] == '1' then list(KEYS[4], register, ARGV[4], ARGV[8] ~= '') end
for i = 14, #ARGV do
    local woken = KEYS[3] .. ':' .. ARGV[i]
    redis.pcall('SET', woken, changes[2], 'PX', ARGV[12])
    publish(woken, ARGV[13], '0')
end
publish(register, ARGV[13], '0')
return following
