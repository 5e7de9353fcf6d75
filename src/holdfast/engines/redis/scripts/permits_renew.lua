-- Extend the leases of many claims on semaphores.
--
-- KEYS     for each claim: permits that are out, free permits, facts about the holders (or, where only one key may be
--          named, the first for all)
-- ARGV     1 how long they are out from now, ms  2 ttl of the semaphores, ms (0: leave it)  3 '1': write in any case
--          4… for each claim: owner, how many permits
-- Returns  for each claim: 1 extended; 0 it does not have all its permits any more, or they have expired.
--
-- "In any case": see renew.lua. Idempotent. Never shortens. A claim that lacks a permit is left as it is, unless
-- all of them are gone (see restore).

-- include permits_ids permits_free permits_out permits_facts
local call, ttl, keep = redis.call, tonumber(ARGV[1]), tonumber(ARGV[2])
local found, now = {}, server_ms()
local score = string.format('%.0f', now + ttl)
for i = 1, #KEYS / 3 do
    local out, free, facts = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
    local ids = permit_ids(ARGV[2 * i + 2], ARGV[2 * i + 3])
    local current, ours = scores(out, ids, now)
    if ours == 0 and free ~= out and restore(free, out, facts, now) > 0 then current, ours = scores(out, ids, now) end
    found[i] = ours == #ids and 1 or 0
    if found[i] == 1 then
        for each = 1, #ids do
            if now + ttl > tonumber(current[each]) then
                call('ZADD', out, score, ids[each])
            elseif ARGV[3] == '1' then
                call('ZADD', out, current[each], ids[each])
            end
        end
        if free ~= out then
            prolong(facts, ARGV[2 * i + 2], math.max(now + ttl, tonumber(current[1])))
            if call('PTTL', facts) < ttl then call('PEXPIRE', facts, ttl) end
            if keep > 0 then
                local left = call('PTTL', free)
                if left >= 0 and left < keep / 2 then call('PEXPIRE', free, keep) end
                if left ~= -1 and call('PTTL', out) < keep / 2 then call('PEXPIRE', out, keep) end
            end
        end
    end
end
return found
