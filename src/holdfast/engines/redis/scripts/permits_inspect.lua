-- Look at a semaphore.
--
-- KEYS     1 free permits  2 permits that are out  3 facts about the holders  4 queue
-- ARGV     1 how many waiters to describe at most
-- Returns  free permits or nil; for each holder of ours: owner, how many permits, when they expire (ms), fact; of other
--          permits: id, when it expires …; number of live waiters; the server's time: seconds, microseconds; of the
--          first live waiters: id, value, id, value …; of permits that are out and have expired: how many. A string
--          that is no number is refused.
--
-- Idempotent: writes nothing.

-- include permits_ids permits_free permits_out waiters
local call = redis.call
local free, problem = number_of(KEYS[1])
if problem then return problem end
local now = server_ms()
local left, expired = {}, 0
-- Bounded: inspecting must not block the server.
local permits = call('ZRANGE', KEYS[2], 0, 9999, 'WITHSCORES')
for i = 1, #permits, 2 do
    if tonumber(permits[i + 1]) > now then
        left[permits[i]] = permits[i + 1]
    else
        expired = expired + 1
    end
end
local holders, facts = {}, call('HGETALL', KEYS[3])
for i = 1, math.min(#facts, 20000), 2 do
    local owner, count, ends = facts[i], 0
    for _, id in ipairs(permit_ids(owner, string.match(facts[i + 1], '^%d+ [%d.]+ (%d+) ') or 0)) do
        if left[id] then
            count, ends, left[id] = count + 1, left[id], nil
        end
    end
    if ends then holders[#holders + 1] = {owner, count, ends, facts[i + 1]} end
end
local others = {}
for id, ends in pairs(left) do
    others[#others + 1] = id
    others[#others + 1] = ends
end
local waiting, described = waiters(KEYS[4], tonumber(ARGV[1]))
local time = call('TIME')
return {
    free and string.format('%.0f', free) or false, holders, others, waiting, time[1], time[2], described,
    expired,
}
