-- Take permits of a semaphore from their holders.
--
-- KEYS     1 free permits  2 permits that are out  3 facts about the holders  4 key that holders watch
-- ARGV     1 channel  2 how to publish  3 ttl of the semaphore, ms (0: none)  4 token ('': any)
-- Returns  1 if permits were taken from a holder, else 0.
--
-- Idempotent with a token: only the holder that has it is broken. Without one a repeat breaks whatever it finds.

-- include publish permits_ids permits_free permits_out permits_facts
local call = redis.call
local free, problem = number_of(KEYS[1])
if problem then return problem end
local now = server_ms()
restore(KEYS[1], KEYS[2], KEYS[3], now)
local reclaimed = reclaim(KEYS[2], now)
local broken, gone = {}, {}
if ARGV[4] == '' then
    gone = call('ZRANGE', KEYS[2], 0, -1)
else
    local facts = call('HGETALL', KEYS[3])
    for i = 1, #facts, 2 do
        local token, count = string.match(facts[i + 1], '^(%d+) [%d.]+ (%d+) ')
        if token == ARGV[4] then
            broken[#broken + 1] = facts[i]
            for _, id in ipairs(permit_ids(facts[i], count)) do gone[#gone + 1] = id end
        end
    end
end
local taken = 0
each_chunk(gone, function(...) taken = taken + call('ZREM', KEYS[2], ...) end)
if free and taken + reclaimed > 0 then
    write_free(KEYS[1], free + taken + reclaimed, KEYS[2], ARGV[3])
    if free + taken + reclaimed > 0 then publish(ARGV[1], ARGV[2], string.format('%.0f', free + taken + reclaimed)) end
end
if taken == 0 then return 0 end
if ARGV[4] == '' then
    call('DEL', KEYS[3])
else
    call('HDEL', KEYS[3], unpack(broken))
end
call('SET', KEYS[4], '1', 'PX', '5000')
return 1
