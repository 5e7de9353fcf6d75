-- Return the permits of a claim. With a tombstone and the waiter's keys: withdraw the claim.
--
-- KEYS     1 free permits  2 permits that are out  3 facts about the holders  4 what tombstones begin with
--          [5 queue  6 key of this claim's waiter]
-- ARGV     1 owner  2 channel  3 how many permits  4 how to publish  [5 ttl of the tombstone, ms ('0' or absent: none)
--          6 waiter]
-- Returns  1 all were ours and are free again; 0 some or all were not out (those that were are free again).
--
-- Idempotent: a repeat finds nothing of ours. The tombstone comes first, as in release.lua. A semaphore whose number of
-- free permits is gone (evicted) stays without: the next claim makes it size - out.

-- include permits_ids
local call = redis.call
if ARGV[5] and ARGV[5] ~= '0' then call('SET', KEYS[4] .. ':gone:' .. ARGV[1], '1', 'PX', ARGV[5]) end
if KEYS[5] then
    call('DEL', KEYS[6])
    redis.pcall('LREM', KEYS[5], '1', ARGV[6])
end
local ids, returned = permit_ids(ARGV[1], ARGV[3]), 0

local function take_back(...)
    local removed = redis.pcall('ZREM', KEYS[2], ...)
    if type(removed) == 'number' then
        returned = returned + removed
    elseif not string.find(removed.err, 'WRONGTYPE', 1, true) then
        error(removed, 0)
    end
end

each_chunk(ids, take_back)
if returned == 0 and call('EXISTS', KEYS[3]) == 1 then
    -- include permits_free permits_out permits_facts
    if restore(KEYS[1], KEYS[2], KEYS[3], server_ms()) > 0 then each_chunk(ids, take_back) end
end
if returned > 0 then
    redis.pcall('HDEL', KEYS[3], ARGV[1])
    if call('EXISTS', KEYS[1]) == 1 then
        -- (A text where it is known: to make one of a number costs as much as a command.)
        local free = call('INCRBY', KEYS[1], returned == #ids and ARGV[3] or returned)
        if free > 0 then
            -- include publish
            publish(ARGV[2], ARGV[4], string.format('%.0f', free))
        end
    end
end
return returned == #ids and 1 or 0
